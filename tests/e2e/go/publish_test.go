package e2e

import (
	"bytes"
	"fmt"
	"math/rand"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestEveryMessageIsConfirmedInSequence(t *testing.T) {
	s := open(t)
	queue := s.durable(nil)
	check(t, s.Confirm(false))
	confirms := s.NotifyPublish(make(chan amqp.Confirmation, 2000))
	equal(t, s.GetNextPublishSeqNo(), 1)
	for _, body := range numbers(0, 2000) {
		s.publish("", queue, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(body)})
	}
	for tag := range uint64(2000) {
		equal(t, next(t, confirms), amqp.Confirmation{DeliveryTag: tag + 1, Ack: true})
	}
	equalAll(t, s.drain(queue), numbers(0, 2000))
}

func TestMessagesNobodyKeepsAreConfirmedToo(t *testing.T) {
	s := open(t)
	for _, arguments := range []amqp.Table{{"x-message-ttl": 0}, {"x-max-length": 0}, {"x-max-length": 1}} {
		s.fill(s.queue(arguments), numbers(0, 20)...)
	}
	s.send("amq.direct", unique("nowhere"), amqp.Publishing{DeliveryMode: amqp.Persistent}, "x")
}

func TestAFullQueueThatRejectsSaysSo(t *testing.T) {
	s := open(t)
	queue := s.queue(amqp.Table{"x-max-length": 2, "x-overflow": "reject-publish"})
	check(t, s.Confirm(false))
	for at, want := range []bool{true, true, false, false} {
		message := amqp.Publishing{Body: []byte{byte('0' + at)}}
		confirmation, err := s.PublishWithDeferredConfirm("", queue, false, false, message)
		check(t, err)
		acked, err := confirmation.WaitContext(t.Context())
		check(t, err)
		equal(t, acked, want)
	}
	equalAll(t, s.drain(queue), []string{"0", "1"})
}

func TestAReturnComesBeforeItsConfirm(t *testing.T) {
	s := open(t)
	check(t, s.Confirm(false))
	// Unbuffered on purpose: the client hands over one thing after the other, as it came.
	returns, confirms := s.NotifyReturn(make(chan amqp.Return)), s.NotifyPublish(make(chan amqp.Confirmation))
	for tag := range uint64(5) {
		key := unique("nowhere")
		check(t, s.PublishWithContext(t.Context(), "", key, true, false, amqp.Publishing{}))
		select {
		case returned := <-returns:
			equal(t, fmt.Sprintln(returned.ReplyCode, returned.ReplyText, returned.RoutingKey), fmt.Sprintln(312, "NO_ROUTE", key))
		case <-confirms:
			t.Fatal("confirmed before it was returned")
		case <-time.After(patience):
			t.Fatal("neither returned nor confirmed")
		}
		equal(t, next(t, confirms), amqp.Confirmation{DeliveryTag: tag + 1, Ack: true})
	}
}

func TestAReturnCarriesTheWholeMessage(t *testing.T) {
	s := open(t)
	returns := s.NotifyReturn(make(chan amqp.Return, 1))
	body, key := bytes.Repeat([]byte("0123456789"), 40_000), unique("nowhere")
	message := amqp.Publishing{ContentType: "a/b", MessageId: "m", Priority: 3, Headers: amqp.Table{"n": int64(1)}, Body: body}
	check(t, s.PublishWithContext(t.Context(), "amq.topic", key, true, false, message))
	returned := next(t, returns)
	equal(t, fmt.Sprintln(returned.Exchange, returned.RoutingKey), fmt.Sprintln("amq.topic", key))
	equal(t, fmt.Sprintln(returned.ContentType, returned.MessageId, returned.Priority, returned.Headers),
		fmt.Sprintln(message.ContentType, message.MessageId, message.Priority, message.Headers))
	equal(t, bytes.Equal(returned.Body, body), true)
}

func TestPropertiesRoundTrip(t *testing.T) {
	s := open(t)
	uri, err := amqp.ParseURI(address())
	check(t, err)
	queue := s.queue(nil)
	sent := amqp.Publishing{
		ContentType: "application/json", ContentEncoding: "gzip", DeliveryMode: amqp.Persistent, Priority: 9,
		CorrelationId: "c", ReplyTo: "r", Expiration: "60000", MessageId: "m", Timestamp: time.Unix(1_700_000_000, 0),
		Type: "t", UserId: uri.Username, AppId: "a", Headers: amqp.Table{"one": int32(1)},
	}
	s.send("", queue, sent, "x")
	got := s.take(queue, true)
	equal(t, got.Timestamp.Equal(sent.Timestamp), true)
	want := fmt.Sprintln(sent.ContentType, sent.ContentEncoding, sent.DeliveryMode, sent.Priority, sent.CorrelationId,
		sent.ReplyTo, sent.Expiration, sent.MessageId, sent.Type, sent.UserId, sent.AppId, sent.Headers)
	equal(t, fmt.Sprintln(got.ContentType, got.ContentEncoding, got.DeliveryMode, got.Priority, got.CorrelationId,
		got.ReplyTo, got.Expiration, got.MessageId, got.Type, got.UserId, got.AppId, got.Headers), want)
}

func TestHeadersOfAllTypesRoundTrip(t *testing.T) {
	s := open(t)
	sent := amqp.Table{
		"bool": true, "byte": byte(200), "int8": int8(-5), "int16": int16(-30_000), "int32": int32(-1 << 31), "int64": int64(-1 << 63),
		"uint16": uint16(60_000), "uint32": uint32(1<<32 - 1), "float32": float32(1.5), "float64": 3.141592653589793, "void": nil,
		"decimal": amqp.Decimal{Scale: 2, Value: 314}, "time": time.Unix(1_700_000_000, 0), "text": "grüße ☃",
		"bytes": []byte{0, 255, 7}, "long": strings.Repeat("x", 60_000), "": "nameless",
		"list":  []any{int32(1), "two", nil, []any{true, amqp.Table{"deep": int64(4)}}},
		"table": amqp.Table{"a": amqp.Table{"b": amqp.Table{"c": []any{int32(1)}}}},
	}
	queue := s.queue(nil)
	s.send("", queue, amqp.Publishing{Headers: sent}, "x")
	got := s.take(queue, true).Headers
	for name, value := range sent {
		if !reflect.DeepEqual(got[name], value) {
			t.Errorf("%s: got %T %.100v, want %T %.100v", name, got[name], got[name], value, value)
		}
	}
	equal(t, len(got), len(sent))
}

func TestBodiesOfAnySizeRoundTrip(t *testing.T) {
	s := open(t)
	queue := s.queue(nil)
	for _, size := range []int{0, 1, 4095, 131_063, 131_064, 131_065, 262_129, 1 << 20, 5_000_000} {
		body := make([]byte, size)
		rand.New(rand.NewSource(int64(size))).Read(body)
		s.publish("", queue, amqp.Publishing{Body: body})
		if got := s.arrived(queue).Body; !bytes.Equal(got, body) {
			t.Fatalf("a body of %d bytes came back with %d", size, len(got))
		}
	}
}

func TestABodyOfSeventeenMegabytesRoundTrips(t *testing.T) {
	s := open(t)
	body := make([]byte, 17<<20)
	rand.New(rand.NewSource(17)).Read(body)
	queue := s.durable(nil)
	deliveries := s.consume(queue, true, nil)
	s.publish("", queue, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: body})
	equal(t, bytes.Equal(next(t, deliveries).Body, body), true)
}

func TestExtraRoutesInHeaders(t *testing.T) {
	s := open(t)
	one, two, three := s.queue(nil), s.queue(nil), s.queue(nil)
	s.send("", one, amqp.Publishing{Headers: amqp.Table{"CC": []any{two, one}, "BCC": []any{three}}}, "x")
	for _, queue := range []string{one, two, three} {
		got := s.take(queue, true)
		_, shown := got.Headers["BCC"]
		equal(t, shown, false)
		equal(t, len(s.drain(queue)), 0)
	}
}

func TestConcurrentPublishersKeepTheirOwnOrder(t *testing.T) {
	s := open(t)
	queue := s.queue(nil)
	deliveries := s.consume(queue, true, nil)
	var publishers sync.WaitGroup
	for name := range 4 {
		own := s.elsewhere()
		publishers.Go(func() {
			for at := range 1500 {
				message := amqp.Publishing{Body: fmt.Appendf(nil, "%d %d", name, at)}
				if err := own.PublishWithContext(t.Context(), "", queue, false, false, message); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var expected [4]int
	for _, body := range bodies(t, deliveries, 6000) {
		var name, at int
		_, err := fmt.Sscan(body, &name, &at)
		check(t, err)
		equal(t, at, expected[name])
		expected[name]++
	}
	publishers.Wait()
}

func TestGoroutinesMayShareAChannel(t *testing.T) {
	s := open(t)
	queue := s.queue(nil)
	var publishers sync.WaitGroup
	for range 8 {
		publishers.Go(func() {
			for range 250 {
				message := amqp.Publishing{Body: make([]byte, 300)}
				if err := s.PublishWithContext(t.Context(), "", queue, false, false, message); err != nil {
					t.Error(err)
				}
			}
		})
	}
	publishers.Wait()
	until(t, "all are there", func() bool { return s.depth(queue) == 2000 })
}
