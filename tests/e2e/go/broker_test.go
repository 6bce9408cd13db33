// Package e2e says to the broker what Go applications say, with the client they use.
package e2e

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// After this time something that should have happened counts as missing.
const patience = 60 * time.Second

// The broker under test.
func address() string {
	if uri := os.Getenv("LEPUS_URI"); uri != "" {
		return uri
	}
	return "amqp://guest:guest@127.0.0.1:5672/"
}

// A name that no other test, run or suite uses.
func unique(kind string) string {
	return "e2e." + kind + "." + rand.Text()
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[T comparable](t *testing.T, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func equalAll(t *testing.T, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("got %.300q, want %.300q", got, want)
	}
}

// Asks until the answer is true.
func until(t *testing.T, what string, question func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !question(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still not so after %v: %s", patience, what)
		}
	}
}

// The next value of a channel of the language.
func next[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case value, open := <-from:
		if !open {
			t.Fatal("closed instead of a value")
		}
		return value
	case <-time.After(patience):
		t.Fatal("nothing came")
	}
	panic("unreachable")
}

// The broker must have refused with this code and these words.
func refused(t *testing.T, err error, code int, words string) {
	t.Helper()
	var refusal *amqp.Error
	if !errors.As(err, &refusal) {
		t.Fatalf("got %v, want a refusal with code %d", err, code)
	}
	if refusal.Code != code || !strings.Contains(refusal.Reason, words) {
		t.Fatalf("got %v, want %d with %q", refusal, code, words)
	}
}

// A connection with changed settings, closed after the test.
func dialConfig(t *testing.T, uri string, config amqp.Config) *amqp.Connection {
	t.Helper()
	connection, err := amqp.DialConfig(uri, config)
	check(t, err)
	t.Cleanup(func() { connection.Close() })
	return connection
}

func dial(t *testing.T) *amqp.Connection {
	t.Helper()
	return dialConfig(t, address(), amqp.Config{Locale: "en_US"})
}

func channel(t *testing.T, connection *amqp.Connection) *amqp.Channel {
	t.Helper()
	opened, err := connection.Channel()
	check(t, err)
	return opened
}

// A test's connection and channel.
type session struct {
	t          *testing.T
	connection *amqp.Connection
	*amqp.Channel
}

func open(t *testing.T) *session {
	t.Helper()
	t.Parallel()
	connection := dial(t)
	return &session{t, connection, channel(t, connection)}
}

// Another channel of the same connection.
func (s *session) another() *session {
	s.t.Helper()
	return &session{s.t, s.connection, channel(s.t, s.connection)}
}

// Another channel of another connection.
func (s *session) elsewhere() *session {
	s.t.Helper()
	connection := dial(s.t)
	return &session{s.t, connection, channel(s.t, connection)}
}

// A fresh exclusive queue.
func (s *session) queue(arguments amqp.Table) string {
	s.t.Helper()
	declared, err := s.QueueDeclare("", false, false, true, false, arguments)
	check(s.t, err)
	return declared.Name
}

// A fresh durable queue, deleted after the test.
func (s *session) durable(arguments amqp.Table) string {
	s.t.Helper()
	name := unique("queue")
	_, err := s.QueueDeclare(name, true, false, false, false, arguments)
	check(s.t, err)
	s.t.Cleanup(func() {
		if sweeping, err := amqp.Dial(address()); err == nil {
			if opened, err := sweeping.Channel(); err == nil {
				opened.QueueDelete(name, false, false, false)
			}
			sweeping.Close()
		}
	})
	return name
}

// A fresh exchange that goes with its last binding.
func (s *session) exchange(kind string, arguments amqp.Table) string {
	s.t.Helper()
	name := unique("exchange")
	check(s.t, s.ExchangeDeclare(name, kind, false, true, false, false, arguments))
	return name
}

// A fresh queue bound to an exchange.
func (s *session) bound(exchange, key string) string {
	s.t.Helper()
	queue := s.queue(nil)
	check(s.t, s.QueueBind(queue, key, exchange, false, nil))
	return queue
}

// Publishes one message without waiting for anything.
func (s *session) publish(exchange, key string, message amqp.Publishing) {
	s.t.Helper()
	check(s.t, s.PublishWithContext(s.t.Context(), exchange, key, false, false, message))
}

// Publishes and returns once every message is confirmed.
func (s *session) send(exchange, key string, message amqp.Publishing, bodies ...string) {
	s.t.Helper()
	confirming := s.another()
	check(s.t, confirming.Confirm(false))
	var all []*amqp.DeferredConfirmation
	for _, body := range bodies {
		message.Body = []byte(body)
		confirmation, err := confirming.PublishWithDeferredConfirm(exchange, key, false, false, message)
		check(s.t, err)
		all = append(all, confirmation)
	}
	for _, confirmation := range all {
		next(s.t, closedAsValue(confirmation.Done()))
		if !confirmation.Acked() {
			s.t.Fatal("the broker refused a message")
		}
	}
	check(s.t, confirming.Close())
}

// Turns the closing of a channel of the language into a value.
func closedAsValue(done <-chan struct{}) <-chan bool {
	result := make(chan bool, 1)
	go func() {
		<-done
		result <- true
	}()
	return result
}

// Publishes to a queue by its name.
func (s *session) fill(queue string, bodies ...string) {
	s.t.Helper()
	s.send("", queue, amqp.Publishing{}, bodies...)
}

// The next message; it must be there by now.
func (s *session) take(queue string, autoAck bool) amqp.Delivery {
	s.t.Helper()
	got, ok, err := s.Get(queue, autoAck)
	check(s.t, err)
	if !ok {
		s.t.Fatalf("no message in %s", queue)
	}
	return got
}

// The next message, waiting until there is one.
func (s *session) arrived(queue string) amqp.Delivery {
	s.t.Helper()
	var found amqp.Delivery
	until(s.t, "a message in "+queue, func() bool {
		got, ok, err := s.Get(queue, true)
		check(s.t, err)
		found = got
		return ok
	})
	return found
}

// Bodies of everything that is ready.
func (s *session) drain(queue string) []string {
	s.t.Helper()
	bodies := []string{}
	for {
		got, ok, err := s.Get(queue, true)
		check(s.t, err)
		if !ok {
			return bodies
		}
		bodies = append(bodies, string(got.Body))
	}
}

// Number of ready messages.
func (s *session) depth(queue string) int {
	s.t.Helper()
	inspected, err := s.QueueDeclarePassive(queue, false, false, false, false, nil)
	check(s.t, err)
	return inspected.Messages
}

// Starts a consumer.
func (s *session) consume(queue string, autoAck bool, arguments amqp.Table) <-chan amqp.Delivery {
	s.t.Helper()
	deliveries, err := s.Consume(queue, unique("consumer"), autoAck, false, false, false, arguments)
	check(s.t, err)
	return deliveries
}

// Nothing was delivered before the broker answered a request on the same channel.
func (s *session) quiet(deliveries <-chan amqp.Delivery) {
	s.t.Helper()
	s.roundTrip()
	select {
	case delivery := <-deliveries:
		s.t.Fatalf("a delivery too many: %.50q", delivery.Body)
	case <-time.After(50 * time.Millisecond):
	}
}

// Waits until the broker has handled everything sent on this channel.
func (s *session) roundTrip() {
	s.t.Helper()
	check(s.t, s.ExchangeDeclarePassive("amq.direct", "direct", true, false, false, false, nil))
}

// The broker must close this channel for what the action asks, sooner or later.
func (s *session) closes(code int, words string, action func() error) {
	s.t.Helper()
	closed := s.NotifyClose(make(chan *amqp.Error, 1))
	_ = action()
	refused(s.t, next(s.t, closed), code, words)
}

// Bodies of the next deliveries.
func bodies(t *testing.T, deliveries <-chan amqp.Delivery, count int) []string {
	t.Helper()
	result := make([]string, count)
	for at := range result {
		result[at] = string(next(t, deliveries).Body)
	}
	return result
}

// The numbers of a range as bodies.
func numbers(from, to int) []string {
	names := []string{}
	for at := from; at < to; at++ {
		names = append(names, fmt.Sprint(at))
	}
	return names
}

// Whether the broker is the Erlang one, where some features are plugins that may be off.
func (s *session) onErlang() bool {
	platform, _ := s.connection.Properties["platform"].(string)
	return strings.HasPrefix(platform, "Erlang")
}

// A TCP relay in front of the broker whose connections can be cut as a bad network does.
type relay struct {
	listener net.Listener
	lock     sync.Mutex
	sockets  []net.Conn
}

func startRelay(t *testing.T) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	r := &relay{listener: listener}
	t.Cleanup(func() {
		listener.Close()
		r.cut()
	})
	go r.accept()
	return r
}

func (r *relay) accept() {
	broker, err := amqp.ParseURI(address())
	if err != nil {
		return
	}
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		upstream, err := net.Dial("tcp", net.JoinHostPort(broker.Host, fmt.Sprint(broker.Port)))
		if err != nil {
			client.Close()
			continue
		}
		r.lock.Lock()
		r.sockets = append(r.sockets, client, upstream)
		r.lock.Unlock()
		for _, pair := range [][2]net.Conn{{client, upstream}, {upstream, client}} {
			go func() {
				io.Copy(pair[0], pair[1])
				pair[0].Close()
				pair[1].Close()
			}()
		}
	}
}

// The broker's address through the relay.
func (r *relay) uri() string {
	uri, _ := amqp.ParseURI(address())
	uri.Host = "127.0.0.1"
	uri.Port = r.listener.Addr().(*net.TCPAddr).Port
	return uri.String()
}

// Ends every connection that runs through the relay, without a word of AMQP.
func (r *relay) cut() {
	r.lock.Lock()
	defer r.lock.Unlock()
	for _, socket := range r.sockets {
		socket.Close()
	}
	r.sockets = nil
}
