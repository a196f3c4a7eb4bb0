import static com.mongodb.client.model.Filters.eq;
import static com.mongodb.client.model.Updates.inc;

import com.mongodb.MongoSocketException;
import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoDatabase;
import com.mongodb.client.model.Aggregates;
import com.mongodb.client.model.Indexes;
import com.mongodb.client.model.InsertOneModel;
import com.mongodb.client.model.UpdateManyModel;
import java.util.ArrayList;
import java.util.List;
import org.bson.Document;
import org.bson.conversions.Bson;

/** Sends one operation after the other, and tells which failed: those that the driver does not repeat by itself. */
public final class Repeats {
  private static final Bson INCREMENT = inc("price", 1);
  private static final Document ALL = new Document();
  private static final List<String> FAILED = new ArrayList<>();

  public static void main(String[] arguments) {
    try (MongoClient client = MongoClients.create(System.getenv("MONGODB_URI"))) {
      MongoDatabase shop = client.getDatabase("shop");
      MongoCollection<Document> items = shop.getCollection("items");
      writes(items);
      reads(shop, items);
      transaction(client, items);
    }
    if (!FAILED.isEmpty()) {
      System.err.println("failed: " + String.join(", ", FAILED));
      System.exit(1);
    }
  }

  private static void writes(MongoCollection<Document> items) {
    call("createIndex", () -> items.createIndex(Indexes.ascending("number")));
    call("insertOne", () -> items.insertOne(number(1)));
    call("insertMany", () -> items.insertMany(List.of(number(2), number(3))));
    call("bulkWrite", () -> items.bulkWrite(List.of(new InsertOneModel<>(number(4)))));
    call("updateOne", () -> items.updateOne(eq("number", 1), INCREMENT));
    call("replaceOne", () -> items.replaceOne(eq("number", 2), number(2)));
    call("updateMany", () -> items.updateMany(ALL, INCREMENT));
    call("bulkWrite with updateMany", () -> items.bulkWrite(List.of(new UpdateManyModel<>(ALL, INCREMENT))));
    call("findOneAndUpdate", () -> items.findOneAndUpdate(eq("number", 1), INCREMENT));
    call("deleteOne", () -> items.deleteOne(eq("number", 1)));
    call("deleteMany", () -> items.deleteMany(eq("number", 2)));
  }

  private static void reads(MongoDatabase shop, MongoCollection<Document> items) {
    call("find, first", () -> items.find().first());
    call("find, next batch", () -> items.find().batchSize(1).into(new ArrayList<>()));
    call("countDocuments", () -> items.countDocuments());
    call("distinct", () -> items.distinct("number", Integer.class).into(new ArrayList<>()));
    call("aggregate with $out", () -> items.aggregate(List.of(Aggregates.out("copy"))).toCollection());
    call("listCollectionNames", () -> shop.listCollectionNames().into(new ArrayList<>()));
    call("runCommand", () -> shop.runCommand(new Document("count", "items")));
  }

  private static void transaction(MongoClient client, MongoCollection<Document> items) {
    try (ClientSession session = client.startSession()) {
      session.startTransaction();
      if (call("insertOne in a transaction", () -> items.insertOne(session, new Document()))) {
        call("commitTransaction", session::commitTransaction);
      }
    }
  }

  private static boolean call(String name, Runnable operation) {
    try {
      operation.run();
      return true;
    } catch (MongoSocketException error) {
      FAILED.add(name);
      return false;
    }
  }

  private static Document number(int number) {
    return new Document("number", number);
  }
}
