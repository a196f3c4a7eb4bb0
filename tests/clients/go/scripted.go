package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
)

var set = bson.M{"$set": bson.M{"a": 1}}

var operations = map[string]func(context.Context, *mongo.Collection) (string, error){
	"find": found,
	"find_secondary": func(c context.Context, items *mongo.Collection) (string, error) {
		return found(c, items.Clone(options.Collection().SetReadPreference(readpref.Secondary())))
	},
	"insert": func(c context.Context, items *mongo.Collection) (string, error) {
		result, err := items.InsertOne(c, bson.M{"_id": 1})
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%v inserted", result.InsertedID), nil
	},
	"update": func(c context.Context, items *mongo.Collection) (string, error) {
		result, err := items.UpdateOne(c, bson.M{}, set)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%d updated", result.ModifiedCount), nil
	},
	"update_many": func(c context.Context, items *mongo.Collection) (string, error) {
		result, err := items.UpdateMany(c, bson.M{}, set)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%d updated", result.ModifiedCount), nil
	},
	"delete": func(c context.Context, items *mongo.Collection) (string, error) {
		result, err := items.DeleteOne(c, bson.M{})
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%d deleted", result.DeletedCount), nil
	},
}

func found(c context.Context, items *mongo.Collection) (string, error) {
	cursor, err := items.Find(c, bson.M{}, options.Find().SetBatchSize(2))
	if err != nil {
		return "", err
	}
	var found []bson.M
	err = cursor.All(c, &found)
	return fmt.Sprintf("%d found", len(found)), err
}

func outcome(c context.Context, operation string, items *mongo.Collection) string {
	found, err := operations[operation](c, items)
	var server mongo.ServerError
	switch {
	case err == nil:
		return found
	case mongo.IsNetworkError(err):
		return "network error"
	case errors.As(err, &server):
		return fmt.Sprintf("error %d", server.ErrorCodes()[0])
	default:
		return reflect.TypeOf(err).String()
	}
}

// Sends operations to scripted servers, and prints their outcomes, a line each.
//
// Each argument is a list of operations and their collections: insert:a,find:b. The operations of an argument have a client of
// their own, and run one after the other; the arguments run at the same time.
func scripted(c context.Context, arguments []string) error {
	outcomes := make([][]string, len(arguments))
	failures := make([]error, len(arguments))
	var running sync.WaitGroup
	for number, argument := range arguments {
		running.Go(func() {
			client, err := mongo.Connect(options.Client().ApplyURI(os.Getenv("MONGODB_URI")))
			if err != nil {
				failures[number] = err
				return
			}
			for _, call := range strings.Split(argument, ",") {
				operation, name, _ := strings.Cut(call, ":")
				line := call + " " + outcome(c, operation, client.Database("shop").Collection(name))
				outcomes[number] = append(outcomes[number], line)
			}
			failures[number] = client.Disconnect(c)
		})
	}
	running.Wait()
	for _, lines := range outcomes {
		fmt.Println(strings.Join(lines, "\n"))
	}
	return errors.Join(failures...)
}
