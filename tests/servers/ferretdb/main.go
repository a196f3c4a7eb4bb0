// Runs FerretDB with SQLite on one address until it is killed.
//
// usage: ferretdb ADDRESS DIRECTORY
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/FerretDB/FerretDB/ferretdb"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: ferretdb ADDRESS DIRECTORY")
	}
	// It has little in memory: less time for collecting what is garbage.
	debug.SetGCPercent(400)
	server, err := ferretdb.New(&ferretdb.Config{
		Listener: ferretdb.ListenerConfig{TCP: os.Args[1]},
		Handler:  "sqlite",
		// No test takes the machine's power away, and killed processes lose nothing: syncs would only make the tests slow.
		SQLiteURL: "file:" + os.Args[2] + "/?_pragma=synchronous(off)",
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := server.Run(ctx); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}
