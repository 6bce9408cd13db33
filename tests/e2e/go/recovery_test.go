package e2e

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestALostConnectionIsToldToEveryChannel(t *testing.T) {
	s := open(t)
	through := startRelay(t)
	fragile := dialConfig(t, through.uri(), amqp.Config{Locale: "en_US"})
	own := channel(t, fragile)
	queue := s.durable(nil)
	s.fill(queue, "a", "b")
	deliveries, err := own.Consume(queue, "", false, false, false, false, nil)
	check(t, err)
	next(t, deliveries)
	closed := own.NotifyClose(make(chan *amqp.Error, 1))
	through.cut()
	next(t, closed)
	until(t, "both are back", func() bool { return s.depth(queue) == 2 })
	equal(t, s.take(queue, true).Redelivered, true)
	equal(t, string(s.take(queue, true).Body), "b")
}

func TestAnExclusiveQueueIsGoneAfterALostConnection(t *testing.T) {
	s := open(t)
	through := startRelay(t)
	owner := channel(t, dialConfig(t, through.uri(), amqp.Config{Locale: "en_US"}))
	name := unique("queue")
	_, err := owner.QueueDeclare(name, false, false, true, false, nil)
	check(t, err)
	through.cut()
	until(t, "the queue is gone", func() bool {
		asking := s.another()
		_, err := asking.QueueDeclarePassive(name, false, false, true, false, nil)
		if err == nil {
			asking.Close()
			return false
		}
		refusal, ok := err.(*amqp.Error)
		return ok && refusal.Code == amqp.NotFound
	})
}

func TestTheClientsRecoveryRestoresTopologyAndConsumers(t *testing.T) {
	s := open(t)
	through := startRelay(t)
	fragile := dialConfig(t, through.uri(), amqp.Config{
		Locale: "en_US",
		Recovery: &amqp.Recovery{ReconnectionConfig: &amqp.ReconnectionConfig{
			MaxRetryCount: 100, RetryInterval: 50 * time.Millisecond,
		}},
	})
	states := make(chan *amqp.StateChanged, 100)
	fragile.NotifyStateChange(states)
	own := channel(t, fragile)
	exchange, queue := unique("exchange"), unique("queue")
	check(t, own.ExchangeDeclare(exchange, "topic", false, true, false, false, nil))
	_, err := own.QueueDeclare(queue, false, false, true, false, amqp.Table{"x-max-length": int32(100)})
	check(t, err)
	check(t, own.QueueBind(queue, "a.#", exchange, false, nil))
	deliveries, err := own.Consume(queue, "mine", true, false, false, false, nil)
	check(t, err)
	for _, body := range numbers(0, 3) {
		s.send(exchange, "a.b", amqp.Publishing{}, body)
		equal(t, string(next(t, deliveries).Body), body)
		through.cut()
		for changed := next(t, states); changed.To != amqp.StateOpen; changed = next(t, states) {
			if changed.Err != nil {
				t.Fatal(changed.Err)
			}
		}
	}
}
