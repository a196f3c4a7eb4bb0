package main

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Two products.
func pricesSetup(c context.Context, client *mongo.Client) error {
	products := []bson.M{{"_id": "book", "price": 10}, {"_id": "pen", "price": 1}}
	_, err := client.Database("shop").Collection("products").InsertMany(c, products)
	return err
}

// Doubles all prices, and repeats the update after a network error.
//
// The mistake: an update that was applied before the error is applied again. One lost reply is enough, because the
// driver does not repeat UpdateMany.
func pricesApp(c context.Context, client *mongo.Client) error {
	products := client.Database("shop").Collection("products")
	for {
		_, err := products.UpdateMany(c, bson.M{}, bson.M{"$mul": bson.M{"price": 2}})
		if !mongo.IsNetworkError(err) {
			return err
		}
	}
}

// Doubles all prices, and records the name of the change in each document. A repetition leaves these documents out.
func pricesMended(c context.Context, client *mongo.Client) error {
	const change = "prices of 2016"
	products := client.Database("shop").Collection("products")
	for {
		unchanged := bson.M{"changes": bson.M{"$ne": change}}
		double := bson.M{"$mul": bson.M{"price": 2}, "$push": bson.M{"changes": change}}
		_, err := products.UpdateMany(c, unchanged, double)
		if !mongo.IsNetworkError(err) {
			return err
		}
	}
}

// Each price was doubled once.
func pricesCheck(c context.Context, client *mongo.Client) error {
	cursor, err := client.Database("shop").Collection("products").Find(c, bson.M{})
	if err != nil {
		return err
	}
	var products []struct {
		ID    string `bson:"_id"`
		Price int
	}
	if err := cursor.All(c, &products); err != nil {
		return err
	}
	prices := map[string]int{}
	for _, product := range products {
		prices[product.ID] = product.Price
	}
	if prices["book"] != 20 || prices["pen"] != 2 {
		return fmt.Errorf("the prices must be 20 and 2: %v", prices)
	}
	return nil
}
