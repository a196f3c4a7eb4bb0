// Programs for tests with the Go driver: the first argument is the name of one.
package main

import (
	"context"
	"log"
	"os"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

var programs = map[string]func(context.Context, *mongo.Client) error{
	"jobs":          jobs,
	"ledger":        ledger,
	"repeats":       repeats,
	"prices-setup":  pricesSetup,
	"prices-app":    pricesApp,
	"prices-mended": pricesMended,
	"prices-check":  pricesCheck,
}

func main() {
	background := context.Background()
	if len(os.Args) > 2 && os.Args[1] == "scripted" {
		if err := scripted(background, os.Args[2:]); err != nil {
			log.Fatal(err)
		}
		return
	}
	client, err := mongo.Connect(options.Client().ApplyURI(os.Getenv("MONGODB_URI")))
	if err != nil {
		log.Fatal(err)
	}
	if len(os.Args) != 2 || programs[os.Args[1]] == nil {
		log.Fatal("the argument is the name of a program of main.go")
	}
	if err := programs[os.Args[1]](background, client); err != nil {
		log.Fatal(err)
	}
	if err := client.Disconnect(background); err != nil {
		log.Fatal(err)
	}
}
