import com.mongodb.MongoCommandException;
import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoDatabase;
import java.util.List;
import java.util.Map;
import org.bson.Document;

/** Runs steps of the ledger bank.tx and of a job queue: repeated, in transactions, and aborted. Programs in other languages use the ledger at the same time. */
public final class Ledger {
  /** The account of this program. */
  private static final String ACCOUNT = "java";

  private static MongoClient client;
  private static MongoDatabase bank;

  /** The end of a transaction that is aborted. */
  private static final class Rollback extends RuntimeException {}

  public static void main(String[] arguments) {
    try (MongoClient connected = MongoClients.create(System.getenv("MONGODB_URI"))) {
      client = connected;
      bank = client.getDatabase("bank");
      run();
    }
  }

  private static void run() {
    Document open = new Document("_id", ACCOUNT).append("asset", "EUR").append("minimum", 0);
    bank.runCommand(new Document("handfastOpenAccount", "tx").append("account", open));
    for (boolean first : new boolean[] {true, false}) {
      check(transfer(null, "deposit", "cash", ACCOUNT, 1000) == first, "the deposit");
    }
    for (int number = 0; number < 10; number++) {
      order(number, 10, number % 2 == 1);
    }
    // As after a commit without an answer.
    fails(256, () -> order(0, 10, false));
    fails(121, () -> order(10, 951, false));
    check(bank.getCollection("orders").countDocuments(new Document("by", ACCOUNT)) == 5, "the orders");
    // Each order has its job, and no other job is there.
    Document mails = new Document("_id", new Document("$regex", "^" + ACCOUNT + " "));
    check(bank.getCollection("mails").countDocuments(mails) == 5, "the jobs");
    Document claim = new Document("handfastClaimJobs", "mails").append("worker", ACCOUNT).append("types", List.of("mail")).append("count", 5);
    for (Document job : bank.runCommand(claim).getList("jobs", Document.class)) {
      Document state = bank.runCommand(new Document("handfastCompleteJob", "mails").append("job", job));
      check(state.getString("claimState").equals("held"), state.toJson());
    }
    holds();
    transfer(null, "mistake", ACCOUNT, "shop", 1);
    Document entry = new Document("_id", ACCOUNT + " mistake");
    bank.runCommand(new Document("handfastCancelEntry", "tx").append("entry", entry).append("reason", "a test"));
    Document balance = bank.runCommand(new Document("handfastBalance", "tx").append("account", ACCOUNT));
    check(balance.getLong("balance") == 890 && balance.getLong("available") == 890, balance.toJson());
  }

  /** Captures a part of a held amount, which cannot be released then. */
  private static void holds() {
    Document named = new Document("_id", ACCOUNT + " hold");
    Document hold = new Document(named).append("payer", ACCOUNT).append("payee", "shop").append("value", 100).append("asset", "EUR");
    bank.runCommand(new Document("handfastPostHold", "tx").append("hold", hold));
    for (int time = 0; time < 2; time++) {
      bank.runCommand(new Document("handfastCaptureHold", "tx").append("hold", named).append("value", 60));
    }
    fails(20, () -> bank.runCommand(new Document("handfastReleaseHold", "tx").append("hold", named)));
  }

  /** Runs a transaction with an order and its entry, which commits or is rolled back. */
  private static void order(int number, long value, boolean rollback) {
    try (ClientSession session = client.startSession()) {
      session.withTransaction(
          () -> {
            bank.getCollection("orders").insertOne(session, new Document(Map.of("by", ACCOUNT, "number", number)));
            transfer(session, "order " + number, ACCOUNT, "shop", value);
            Document job = new Document("_id", ACCOUNT + " mail " + number).append("type", "mail");
            bank.runCommand(session, new Document("handfastEnqueueJob", "mails").append("job", job));
            if (rollback) throw new Rollback();
            return null;
          });
    } catch (Rollback end) {
      check(rollback, "a rollback");
    }
  }

  /** Posts an entry, and returns whether it was posted now. */
  private static boolean transfer(ClientSession session, String name, String payer, String payee, long value) {
    List<Document> changes = List.of(change(payer, -value), change(payee, value));
    Document entry = new Document("_id", ACCOUNT + " " + name).append("changes", changes);
    Document command = new Document("handfastPostEntry", "tx").append("entry", entry);
    Document answer = session == null ? bank.runCommand(command) : bank.runCommand(session, command);
    return answer.getBoolean("posted");
  }

  private static Document change(String account, long value) {
    return new Document("account", account).append("value", value).append("asset", "EUR");
  }

  private static void fails(int code, Runnable step) {
    try {
      step.run();
    } catch (MongoCommandException error) {
      check(error.getErrorCode() == code, error.getMessage());
      return;
    }
    check(false, "an error " + code + " was expected");
  }

  private static void check(boolean holds, String what) {
    if (!holds) throw new AssertionError(what);
  }
}
