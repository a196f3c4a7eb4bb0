package main

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

var errRollback = errors.New("rollback")

// jobs runs the commands of job queues, alone and in the driver's transaction.
func jobs(ctx context.Context, client *mongo.Client) error {
	database := client.Database("go_jobs")
	if err := database.Drop(ctx); err != nil {
		return err
	}
	enqueue := func(ctx context.Context, id int) error {
		job := bson.D{{"_id", id}, {"type", "mail"}, {"details", bson.D{{"to", "ann"}}}}
		return database.RunCommand(ctx, bson.D{{"handfastEnqueueJob", "jobs"}, {"job", job}}).Err()
	}
	for id, end := range []error{nil, errRollback} {
		err := client.UseSession(ctx, func(ctx context.Context) error {
			session := mongo.SessionFromContext(ctx)
			_, err := session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
				if _, err := database.Collection("orders").InsertOne(ctx, bson.D{{"_id", id}}); err != nil {
					return nil, err
				}
				if err := enqueue(ctx, id); err != nil {
					return nil, err
				}
				return nil, end
			})
			return err
		})
		if !errors.Is(err, end) {
			return fmt.Errorf("the transaction of order %d: %w", id, err)
		}
	}
	claimed, err := claimJobs(ctx, database)
	if err != nil {
		return err
	}
	if len(claimed) != 1 || claimed[0].Id != 0 || claimed[0].Details["to"] != "ann" {
		return fmt.Errorf("one job was expected: %v", claimed)
	}
	complete := bson.D{{"handfastCompleteJob", "jobs"}, {"job", bson.D{{"_id", claimed[0].Id}, {"claim", claimed[0].Claim}}}}
	var answer struct {
		ClaimState string `bson:"claimState"`
	}
	if err := database.RunCommand(ctx, complete).Decode(&answer); err != nil {
		return err
	}
	if answer.ClaimState != "held" {
		return fmt.Errorf("the claim is %s", answer.ClaimState)
	}
	return database.Drop(ctx)
}

type claimedJob struct {
	Id      int           `bson:"_id"`
	Claim   bson.ObjectID `bson:"claim"`
	Details map[string]string
}

func claimJobs(ctx context.Context, database *mongo.Database) ([]claimedJob, error) {
	command := bson.D{{"handfastClaimJobs", "jobs"}, {"worker", "w"}, {"types", bson.A{"mail"}}, {"count", 10}}
	var answer struct{ Jobs []claimedJob }
	err := database.RunCommand(ctx, command).Decode(&answer)
	return answer.Jobs, err
}
