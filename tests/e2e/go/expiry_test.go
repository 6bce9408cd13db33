package e2e

import (
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestMessagesExpire(t *testing.T) {
	s := open(t)
	queue := s.queue(amqp.Table{"x-message-ttl": int32(200)})
	own := s.queue(nil)
	s.fill(queue, "a", "b")
	s.send("", own, amqp.Publishing{Expiration: "100"}, "short")
	s.fill(own, "for ever")
	until(t, "all expired", func() bool { return s.depth(queue) == 0 && s.depth(own) == 1 })
	equalAll(t, s.drain(own), []string{"for ever"})
}

func TestTimeZeroExpiresUnlessAConsumerWaits(t *testing.T) {
	s := open(t)
	queue := s.queue(amqp.Table{"x-message-ttl": 0})
	s.fill(queue, "lost")
	equalAll(t, s.drain(queue), nil)
	deliveries := s.consume(queue, true, nil)
	s.fill(queue, "at once")
	equal(t, string(next(t, deliveries).Body), "at once")
}

// The entries of x-death, newest first.
func deaths(t *testing.T, delivery amqp.Delivery) []amqp.Table {
	t.Helper()
	list, ok := delivery.Headers["x-death"].([]any)
	if !ok {
		t.Fatalf("no x-death in %v", delivery.Headers)
	}
	var result []amqp.Table
	for _, entry := range list {
		result = append(result, entry.(amqp.Table))
	}
	return result
}

func died(t *testing.T, death amqp.Table, reason, queue, exchange, key string, count int64) {
	t.Helper()
	got := fmt.Sprintln(death["reason"], death["queue"], death["exchange"], death["routing-keys"], death["count"])
	equal(t, got, fmt.Sprintln(reason, queue, exchange, []any{key}, count))
	if _, ok := death["count"].(int64); !ok {
		t.Fatalf("count is %T", death["count"])
	}
	if _, ok := death["time"].(time.Time); !ok {
		t.Fatalf("time is %T", death["time"])
	}
}

func TestExpiredMessagesDieIntoTheirExchange(t *testing.T) {
	s := open(t)
	graves := s.exchange("direct", nil)
	grave := s.bound(graves, "dead")
	queue := s.queue(amqp.Table{"x-dead-letter-exchange": graves, "x-dead-letter-routing-key": "dead"})
	s.send("", queue, amqp.Publishing{Expiration: "50", Headers: amqp.Table{"own": "kept"}}, "x")
	dead := s.arrived(grave)
	equal(t, fmt.Sprintln(string(dead.Body), dead.Exchange, dead.RoutingKey, dead.Expiration, dead.Redelivered),
		fmt.Sprintln("x", graves, "dead", "", false))
	equal(t, dead.Headers["own"], any("kept"))
	equal(t, dead.Headers["x-first-death-reason"], any("expired"))
	equal(t, dead.Headers["x-first-death-queue"], any(queue))
	died(t, deaths(t, dead)[0], "expired", queue, "", queue, 1)
	equal(t, deaths(t, dead)[0]["original-expiration"], any("50"))
}

func TestRejectedMessagesDie(t *testing.T) {
	s := open(t)
	source, graves := s.exchange("topic", nil), s.exchange("topic", nil)
	grave := s.bound(graves, "orders.#")
	queue := s.queue(amqp.Table{"x-dead-letter-exchange": graves})
	check(t, s.QueueBind(queue, "orders.*", source, false, nil))
	s.send(source, "orders.new", amqp.Publishing{}, "rejected", "nacked")
	check(t, s.take(queue, false).Reject(false))
	check(t, s.take(queue, false).Nack(false, false))
	for _, body := range []string{"rejected", "nacked"} {
		dead := s.arrived(grave)
		equal(t, string(dead.Body), body)
		died(t, deaths(t, dead)[0], "rejected", queue, source, "orders.new", 1)
	}
}

func TestTheOldestDieWhenAQueueIsFull(t *testing.T) {
	s := open(t)
	graves := s.exchange("fanout", nil)
	grave := s.bound(graves, "")
	queue := s.queue(amqp.Table{"x-max-length": 2, "x-dead-letter-exchange": graves})
	s.fill(queue, numbers(0, 5)...)
	equalAll(t, s.drain(queue), []string{"3", "4"})
	until(t, "three are dead", func() bool { return s.depth(grave) == 3 })
	died(t, deaths(t, s.take(grave, true))[0], "maxlen", queue, "", queue, 1)
	limited := s.queue(amqp.Table{"x-max-length-bytes": 10})
	s.fill(limited, "12345", "67890", "abcde")
	equalAll(t, s.drain(limited), []string{"67890", "abcde"})
}

func TestDeathsAreCountedPerQueueAndReason(t *testing.T) {
	s := open(t)
	parking := unique("queue")
	work := s.queue(amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": parking})
	_, err := s.QueueDeclare(parking, false, false, true, false,
		amqp.Table{"x-message-ttl": 30, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": work})
	check(t, err)
	s.fill(work, "retry")
	deliveries := s.consume(work, false, nil)
	for round := range int64(4) {
		delivery := next(t, deliveries)
		if round > 0 {
			all := deaths(t, delivery)
			equal(t, len(all), 2)
			died(t, all[0], "expired", parking, "", parking, round)
			died(t, all[1], "rejected", work, "", work, round)
		}
		check(t, delivery.Reject(false))
	}
}

func TestACycleWithoutARejectEnds(t *testing.T) {
	s := open(t)
	queue := unique("queue")
	_, err := s.QueueDeclare(queue, false, false, true, false,
		amqp.Table{"x-message-ttl": 20, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue})
	check(t, err)
	s.fill(queue, "turns in vain")
	until(t, "it is dropped", func() bool { return s.depth(queue) == 0 })
	time.Sleep(100 * time.Millisecond)
	equal(t, s.depth(queue), 0)
}

func TestADeliveryLimitEndsRetries(t *testing.T) {
	s := open(t)
	graves := s.exchange("fanout", nil)
	grave := s.bound(graves, "")
	queue := s.durable(amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 2, "x-dead-letter-exchange": graves})
	s.fill(queue, "poison")
	deliveries := s.consume(queue, false, nil)
	for range 3 {
		check(t, next(t, deliveries).Nack(false, true))
	}
	died(t, deaths(t, s.arrived(grave))[0], "delivery_limit", queue, "", queue, 1)
}

func TestHigherPrioritiesComeFirst(t *testing.T) {
	s := open(t)
	queue := s.queue(amqp.Table{"x-max-priority": 5})
	for at, priority := range []uint8{1, 5, 0, 3, 9, 3} {
		s.send("", queue, amqp.Publishing{Priority: priority}, fmt.Sprint(at))
	}
	equalAll(t, s.drain(queue), []string{"1", "4", "3", "5", "0", "2"})
}

func TestADelayedMessageComesLater(t *testing.T) {
	s := open(t)
	if s.onErlang() {
		t.Skip("the plugin is not enabled")
	}
	exchange := s.exchange("x-delayed-message", amqp.Table{"x-delayed-type": "direct"})
	queue := s.bound(exchange, "k")
	for _, delay := range []int32{600, 200, 0} {
		s.send(exchange, "k", amqp.Publishing{Headers: amqp.Table{"x-delay": delay}}, fmt.Sprint(delay))
	}
	for _, delay := range []string{"0", "200", "600"} {
		equal(t, string(s.arrived(queue).Body), delay)
	}
}
