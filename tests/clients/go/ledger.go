package main

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// The account of this program in the ledger that programs in other languages use, too.
const account = "go"

// ledger runs steps of the ledger bank.tx: repeated, in transactions, and aborted.
func ledger(ctx context.Context, client *mongo.Client) error {
	bank := client.Database("bank")
	open := bson.D{{"_id", account}, {"asset", "EUR"}, {"minimum", 0}}
	if err := bank.RunCommand(ctx, bson.D{{"handfastOpenAccount", "tx"}, {"account", open}}).Err(); err != nil {
		return err
	}
	for _, first := range []bool{true, false} {
		if posted, err := transfer(ctx, bank, "deposit", "cash", account, 1000); err != nil || posted != first {
			return fmt.Errorf("the deposit: %v, %w", posted, err)
		}
	}
	for number := range 10 {
		end := []error{nil, errRollback}[number%2]
		if err := order(ctx, client, number, 10, end); !errors.Is(err, end) {
			return fmt.Errorf("order %d: %w", number, err)
		}
	}
	// As after a commit without an answer.
	if err := hasCode(256, order(ctx, client, 0, 10, nil)); err != nil {
		return err
	}
	if err := hasCode(121, order(ctx, client, 10, 951, nil)); err != nil {
		return err
	}
	if count, err := bank.Collection("orders").CountDocuments(ctx, bson.D{{"by", account}}); err != nil || count != 5 {
		return fmt.Errorf("%d orders, %w", count, err)
	}
	if err := holds(ctx, bank); err != nil {
		return err
	}
	if _, err := transfer(ctx, bank, "mistake", account, "shop", 1); err != nil {
		return err
	}
	entry := bson.D{{"_id", account + " mistake"}}
	cancel := bson.D{{"handfastCancelEntry", "tx"}, {"entry", entry}, {"reason", "a test"}}
	if err := bank.RunCommand(ctx, cancel).Err(); err != nil {
		return err
	}
	var balance struct{ Balance, Available int64 }
	command := bson.D{{"handfastBalance", "tx"}, {"account", account}}
	if err := bank.RunCommand(ctx, command).Decode(&balance); err != nil {
		return err
	}
	if balance.Balance != 890 || balance.Available != 890 {
		return fmt.Errorf("the balance is %+v", balance)
	}
	return nil
}

// holds captures a part of a held amount, which cannot be released then.
func holds(ctx context.Context, bank *mongo.Database) error {
	named := bson.D{{"_id", account + " hold"}}
	hold := append(bson.D{{"payer", account}, {"payee", "shop"}, {"value", 100}, {"asset", "EUR"}}, named...)
	if err := bank.RunCommand(ctx, bson.D{{"handfastPostHold", "tx"}, {"hold", hold}}).Err(); err != nil {
		return err
	}
	for range 2 {
		capture := bson.D{{"handfastCaptureHold", "tx"}, {"hold", named}, {"value", 60}}
		if err := bank.RunCommand(ctx, capture).Err(); err != nil {
			return err
		}
	}
	return hasCode(20, bank.RunCommand(ctx, bson.D{{"handfastReleaseHold", "tx"}, {"hold", named}}).Err())
}

// order runs a transaction with an order and its entry, which commits unless there is an error to end it.
func order(ctx context.Context, client *mongo.Client, number int, value int64, end error) error {
	bank := client.Database("bank")
	return client.UseSession(ctx, func(ctx context.Context) error {
		_, err := mongo.SessionFromContext(ctx).WithTransaction(ctx, func(ctx context.Context) (any, error) {
			if _, err := bank.Collection("orders").InsertOne(ctx, bson.D{{"by", account}, {"number", number}}); err != nil {
				return nil, err
			}
			if _, err := transfer(ctx, bank, fmt.Sprintf("order %d", number), account, "shop", value); err != nil {
				return nil, err
			}
			return nil, end
		})
		return err
	})
}

func transfer(ctx context.Context, bank *mongo.Database, entry, payer, payee string, value int64) (bool, error) {
	changes := bson.A{
		bson.D{{"account", payer}, {"value", -value}, {"asset", "EUR"}},
		bson.D{{"account", payee}, {"value", value}, {"asset", "EUR"}},
	}
	command := bson.D{{"handfastPostEntry", "tx"}, {"entry", bson.D{{"_id", account + " " + entry}, {"changes", changes}}}}
	var answer struct{ Posted bool }
	err := bank.RunCommand(ctx, command).Decode(&answer)
	return answer.Posted, err
}

// hasCode returns an error unless there is one with this code.
func hasCode(code int, err error) error {
	var server mongo.ServerError
	if errors.As(err, &server) && server.HasErrorCode(code) {
		return nil
	}
	return fmt.Errorf("an error %d was expected: %w", code, err)
}
