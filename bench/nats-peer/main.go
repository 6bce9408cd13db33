// Command nats-peer is a NATS server that lepus-bench measures beside lepus: the server's own package with its own
// settings, on a port of 127.0.0.1, and its counts on a page that lepus-bench reads of every broker.
//
//	nats-peer PORT METRICS_PORT
package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// patience is how long the server may take until it listens.
const patience = 10 * time.Second

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "nats-peer:", err)
		os.Exit(1)
	}
}

func run(words []string) error {
	if len(words) != 2 {
		return fmt.Errorf("PORT METRICS_PORT are needed, and nothing else")
	}
	port, err := strconv.ParseUint(words[0], 10, 16)
	if err != nil {
		return fmt.Errorf("PORT: %w", err)
	}
	// Its own defaults but for the place: no JetStream, nothing is stored.
	nats, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: int(port), NoSigs: true})
	if err != nil {
		return err
	}
	nats.ConfigureLogger()
	nats.Start()
	defer nats.WaitForShutdown()
	defer nats.Shutdown()
	if !nats.ReadyForConnections(patience) {
		return fmt.Errorf("it does not listen after %v", patience)
	}
	page, err := net.Listen("tcp", "127.0.0.1:"+words[1])
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- http.Serve(page, counts(nats)) }()
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	select {
	case <-end:
		return nil
	case err := <-failed:
		return err
	}
}

// counts answers with what the server has counted, by the names that the null broker uses as well.
func counts(nats *server.Server) http.Handler {
	return http.HandlerFunc(func(answer http.ResponseWriter, _ *http.Request) {
		all, err := nats.Varz(nil)
		if err != nil {
			http.Error(answer, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintf(answer, "rabbitmq_global_messages_received_total %d\n", all.InMsgs)
		fmt.Fprintf(answer, "rabbitmq_global_messages_delivered_total %d\n", all.OutMsgs)
	})
}
