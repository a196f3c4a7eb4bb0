package main

import (
	"context"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Sends one operation after the other, and fails with the names of those that failed: the ones that the driver does not
// repeat by itself.
func repeats(background context.Context, client *mongo.Client) error {
	shop := client.Database("shop")
	items := shop.Collection("items")
	increment := bson.M{"$inc": bson.M{"price": 1}}
	number := func(number int) bson.M { return bson.M{"number": number} }

	var failed []string
	call := func(name string, operation func(context.Context) error) bool {
		err := operation(background)
		if err != nil {
			failed = append(failed, name)
		}
		return err == nil
	}
	call("CreateOne", func(c context.Context) error {
		_, err := items.Indexes().CreateOne(c, mongo.IndexModel{Keys: number(1)})
		return err
	})
	call("InsertOne", func(c context.Context) error { _, err := items.InsertOne(c, number(1)); return err })
	call("InsertMany", func(c context.Context) error {
		_, err := items.InsertMany(c, []bson.M{number(2), number(3)})
		return err
	})
	call("BulkWrite", func(c context.Context) error {
		_, err := items.BulkWrite(c, []mongo.WriteModel{mongo.NewInsertOneModel().SetDocument(number(4))})
		return err
	})
	call("UpdateOne", func(c context.Context) error { _, err := items.UpdateOne(c, number(1), increment); return err })
	call("ReplaceOne", func(c context.Context) error { _, err := items.ReplaceOne(c, number(2), number(2)); return err })
	call("UpdateMany", func(c context.Context) error { _, err := items.UpdateMany(c, bson.M{}, increment); return err })
	call("BulkWrite with UpdateMany", func(c context.Context) error {
		_, err := items.BulkWrite(c, []mongo.WriteModel{mongo.NewUpdateManyModel().SetFilter(bson.M{}).SetUpdate(increment)})
		return err
	})
	call("FindOneAndUpdate", func(c context.Context) error { return items.FindOneAndUpdate(c, number(1), increment).Err() })
	call("DeleteOne", func(c context.Context) error { _, err := items.DeleteOne(c, number(1)); return err })
	call("DeleteMany", func(c context.Context) error { _, err := items.DeleteMany(c, number(2)); return err })
	call("FindOne", func(c context.Context) error { return items.FindOne(c, bson.M{}).Err() })
	call("Find, next batch", func(c context.Context) error { return findAll(c, items) })
	call("CountDocuments", func(c context.Context) error { _, err := items.CountDocuments(c, bson.M{}); return err })
	call("Distinct", func(c context.Context) error { return items.Distinct(c, "number", bson.M{}).Err() })
	call("Aggregate with $out", func(c context.Context) error { _, err := items.Aggregate(c, []bson.M{{"$out": "copy"}}); return err })
	call("ListCollectionNames", func(c context.Context) error { _, err := shop.ListCollectionNames(c, bson.M{}); return err })
	call("RunCommand", func(c context.Context) error { return shop.RunCommand(c, bson.M{"count": "items"}).Err() })

	err := client.UseSession(background, func(c context.Context) error {
		session := mongo.SessionFromContext(c)
		if err := session.StartTransaction(); err != nil {
			return err
		}
		insert := func(context.Context) error { _, err := items.InsertOne(c, bson.M{}); return err }
		if call("InsertOne in a transaction", insert) {
			call("CommitTransaction", func(context.Context) error { return session.CommitTransaction(c) })
		}
		return nil
	})
	if err == nil && len(failed) > 0 {
		err = fmt.Errorf("failed: %s", strings.Join(failed, ", "))
	}
	return err
}

func findAll(c context.Context, items *mongo.Collection) error {
	cursor, err := items.Find(c, bson.M{}, options.Find().SetBatchSize(1))
	if err != nil {
		return err
	}
	var found []bson.M
	return cursor.All(c, &found)
}
