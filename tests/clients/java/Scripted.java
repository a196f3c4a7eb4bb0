import com.mongodb.MongoException;
import com.mongodb.MongoServerException;
import com.mongodb.MongoSocketException;
import com.mongodb.ReadPreference;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.bson.Document;

/**
 * Sends operations to scripted servers, and prints their outcomes, a line each.
 *
 * <p>Each argument is a list of operations and their collections: insert:a,find:b. The operations of an argument have a client
 * of their own, and run one after the other; the arguments run at the same time.
 */
public final class Scripted {
  private static final Document SET = new Document("$set", new Document("a", 1));

  public static void main(String[] arguments) throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(arguments.length);
    List<Future<List<String>>> outcomes = new ArrayList<>();
    for (String argument : arguments) {
      outcomes.add(threads.submit(() -> run(argument)));
    }
    for (Future<List<String>> lines : outcomes) {
      System.out.println(String.join("\n", lines.get()));
    }
    threads.shutdown();
  }

  private static List<String> run(String argument) {
    List<String> lines = new ArrayList<>();
    try (MongoClient client = MongoClients.create(System.getenv("MONGODB_URI"))) {
      for (String call : argument.split(",")) {
        String[] parts = call.split(":");
        lines.add(call + " " + outcome(parts[0], client.getDatabase("shop").getCollection(parts[1])));
      }
    }
    return lines;
  }

  private static String outcome(String operation, MongoCollection<Document> items) {
    try {
      return switch (operation) {
        case "find" -> found(items);
        case "find_secondary" -> found(items.withReadPreference(ReadPreference.secondary()));
        case "insert" -> items.insertOne(new Document("_id", 1)).getInsertedId().asInt32().getValue() + " inserted";
        case "update" -> items.updateOne(new Document(), SET).getModifiedCount() + " updated";
        case "update_many" -> items.updateMany(new Document(), SET).getModifiedCount() + " updated";
        case "delete" -> items.deleteOne(new Document()).getDeletedCount() + " deleted";
        default -> operation + " is not an operation";
      };
    } catch (MongoServerException error) {
      return "error " + error.getCode();
    } catch (MongoSocketException error) {
      return "network error";
    } catch (MongoException error) {
      return error.getClass().getSimpleName();
    }
  }

  private static String found(MongoCollection<Document> items) {
    return items.find().batchSize(2).into(new ArrayList<>()).size() + " found";
  }
}
