package e2e

import (
	"fmt"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestMultipleSettlesEverythingSoFar(t *testing.T) {
	s := open(t)
	queue := s.queue(nil)
	s.fill(queue, numbers(0, 6)...)
	own := s.another()
	var all []amqp.Delivery
	for range 6 {
		all = append(all, own.take(queue, false))
	}
	check(t, all[1].Ack(true))
	check(t, all[3].Nack(true, false))
	check(t, own.Close())
	equalAll(t, s.drain(queue), []string{"4", "5"})
}

func TestTagZeroWithMultipleMeansAll(t *testing.T) {
	s := open(t)
	queue := s.queue(nil)
	s.fill(queue, numbers(0, 4)...)
	for range 4 {
		s.take(queue, false)
	}
	check(t, s.Nack(0, true, true))
	until(t, "all are back", func() bool { return s.depth(queue) == 4 })
	equalAll(t, s.drain(queue), numbers(0, 4))
	s.closes(406, "unknown delivery tag 0", func() error { return s.Ack(0, false) })
}

func TestRequeuedMessagesComeBackInPlace(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			s := open(t)
			queue := s.durable(amqp.Table{"x-queue-type": kind})
			s.fill(queue, numbers(0, 5)...)
			var last amqp.Delivery
			for range 5 {
				last = s.take(queue, false)
			}
			check(t, last.Nack(true, true))
			until(t, "all are back", func() bool { return s.depth(queue) == 5 })
			for at := range 5 {
				got := s.take(queue, true)
				equal(t, fmt.Sprintln(string(got.Body), got.Redelivered), fmt.Sprintln(at, true))
			}
		})
	}
}

func TestAClassicQueueKeepsTheOrderOfSingleRejects(t *testing.T) {
	s := open(t)
	queue := s.queue(nil)
	s.fill(queue, numbers(0, 5)...)
	first, second := s.take(queue, false), s.take(queue, false)
	check(t, second.Reject(true))
	check(t, first.Reject(true))
	until(t, "both are back", func() bool { return s.depth(queue) == 5 })
	for at := range 5 {
		got := s.take(queue, true)
		equal(t, fmt.Sprintln(string(got.Body), got.Redelivered), fmt.Sprintln(at, at < 2))
	}
}

func TestTwoThousandUnsettledMessagesComeBackInOrder(t *testing.T) {
	for name, end := range map[string]func(own *session) error{
		"connection": func(own *session) error { return own.connection.Close() },
		"channel":    func(own *session) error { return own.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			queue := s.durable(nil)
			s.fill(queue, numbers(0, 2000)...)
			own := s.elsewhere()
			bodies(t, own.consume(queue, false, nil), 2000)
			check(t, end(own))
			until(t, "all are back", func() bool { return s.depth(queue) == 2000 })
			equal(t, s.take(queue, false).Redelivered, true)
			equalAll(t, s.drain(queue), numbers(1, 2000))
		})
	}
}

func TestRecoverGivesEverythingBack(t *testing.T) {
	s := open(t)
	queue := s.queue(nil)
	s.fill(queue, numbers(0, 3)...)
	deliveries := s.consume(queue, false, nil)
	bodies(t, deliveries, 3)
	check(t, s.Recover(true))
	for at := range 3 {
		delivery := next(t, deliveries)
		equal(t, fmt.Sprintln(string(delivery.Body), delivery.Redelivered), fmt.Sprintln(at, true))
		check(t, delivery.Ack(false))
	}
}

func TestASettledDeliveryCannotBeSettledAgain(t *testing.T) {
	s := open(t)
	queue := s.queue(nil)
	s.fill(queue, "x")
	got := s.take(queue, false)
	check(t, got.Ack(false))
	s.closes(406, fmt.Sprintf("unknown delivery tag %d", got.DeliveryTag), func() error { return got.Ack(false) })
}

func TestNackGivesCreditBack(t *testing.T) {
	s := open(t)
	queue := s.queue(nil)
	check(t, s.Qos(1, 0, false))
	deliveries := s.consume(queue, false, nil)
	s.fill(queue, "a", "b")
	check(t, next(t, deliveries).Nack(false, true))
	again := next(t, deliveries)
	equal(t, fmt.Sprintln(string(again.Body), again.Redelivered), fmt.Sprintln("a", true))
	check(t, again.Reject(false))
	equal(t, string(next(t, deliveries).Body), "b")
}

func TestTransactions(t *testing.T) {
	s := open(t)
	queue := s.durable(nil)
	tx := s.another()
	check(t, tx.Tx())
	tx.publish("", queue, amqp.Publishing{Body: []byte("committed")})
	tx.roundTrip()
	equalAll(t, s.drain(queue), nil)
	check(t, tx.TxCommit())
	equal(t, s.depth(queue), 1)
	tx.publish("", queue, amqp.Publishing{Body: []byte("forgotten")})
	check(t, tx.TxRollback())
	got := tx.take(queue, false)
	check(t, got.Ack(false))
	check(t, tx.TxRollback())
	check(t, got.Nack(false, true))
	check(t, tx.TxCommit())
	until(t, "the message is back", func() bool { return s.depth(queue) == 1 })
	equalAll(t, s.drain(queue), []string{"committed"})
	tx.publish("", queue, amqp.Publishing{Body: []byte("lost with its channel")})
	check(t, tx.Close())
	equalAll(t, s.drain(queue), nil)
}
