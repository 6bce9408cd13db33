package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestAConsumerGetsEverythingInOrder(t *testing.T) {
	s := open(t)
	queue := s.queue(nil)
	s.fill(queue, numbers(0, 50)...)
	deliveries := s.consume(queue, false, nil)
	s.fill(queue, numbers(50, 100)...)
	for at := range 100 {
		delivery := next(t, deliveries)
		equal(t, fmt.Sprintln(string(delivery.Body), delivery.DeliveryTag, delivery.Redelivered), fmt.Sprintln(at, at+1, false))
		check(t, delivery.Ack(false))
	}
	s.roundTrip()
	equal(t, s.depth(queue), 0)
}

func TestManyMessagesWithManualAcks(t *testing.T) {
	s := open(t)
	queue := s.queue(nil)
	check(t, s.Qos(50, 0, false))
	deliveries := s.consume(queue, false, nil)
	sender := s.elsewhere()
	go func() {
		for _, body := range numbers(0, 20_000) {
			_ = sender.PublishWithContext(t.Context(), "", queue, false, false, amqp.Publishing{Body: []byte(body)})
		}
	}()
	for at := range 20_000 {
		delivery := next(t, deliveries)
		equal(t, string(delivery.Body), fmt.Sprint(at))
		check(t, delivery.Ack(false))
	}
}

func TestDeletingAQueueCancelsItsConsumers(t *testing.T) {
	s := open(t)
	queue := s.queue(nil)
	cancelled := s.NotifyCancel(make(chan string, 1))
	deliveries, err := s.Consume(queue, "mine", true, false, false, false, nil)
	check(t, err)
	_, err = s.another().QueueDelete(queue, false, false, false)
	check(t, err)
	equal(t, next(t, cancelled), "mine")
	select {
	case _, isOpen := <-deliveries:
		equal(t, isOpen, false)
	case <-time.After(patience):
		t.Fatal("the deliveries never end")
	}
	s.queue(nil)
}

func TestACancelledConsumerKeepsWhatItHas(t *testing.T) {
	s := open(t)
	queue := s.queue(nil)
	deliveries, err := s.Consume(queue, "mine", false, false, false, false, nil)
	check(t, err)
	s.fill(queue, "before")
	held := next(t, deliveries)
	check(t, s.Cancel("mine", false))
	check(t, s.Cancel("nobody's", false))
	s.fill(queue, "after")
	equalAll(t, s.drain(queue), []string{"after"})
	check(t, held.Reject(true))
	again := s.arrived(queue)
	equal(t, string(again.Body), "before")
	equal(t, again.Redelivered, true)
}

func TestTheEndOfAContextCancelsTheConsumer(t *testing.T) {
	s := open(t)
	queue := s.queue(nil)
	ctx, cancel := context.WithCancel(t.Context())
	deliveries, err := s.ConsumeWithContext(ctx, queue, "", true, false, false, false, nil)
	check(t, err)
	cancel()
	until(t, "the consumer is gone", func() bool {
		inspected, err := s.QueueDeclarePassive(queue, false, false, true, false, nil)
		check(t, err)
		return inspected.Consumers == 0
	})
	for range deliveries {
		t.Fatal("a delivery out of nothing")
	}
}

func TestPrefetchCountsPerConsumer(t *testing.T) {
	s := open(t)
	queue := s.queue(nil)
	s.fill(queue, numbers(0, 10)...)
	check(t, s.Qos(2, 0, false))
	one := s.consume(queue, false, nil)
	first := next(t, one)
	next(t, one)
	s.quiet(one)
	check(t, s.Qos(3, 0, false))
	two := s.consume(queue, false, nil)
	equalAll(t, bodies(t, two, 3), numbers(2, 5))
	s.quiet(two)
	check(t, first.Ack(false))
	equal(t, string(next(t, one).Body), "5")
	s.quiet(one)
}

func TestGlobalPrefetchCountsPerChannel(t *testing.T) {
	s := open(t)
	queue := s.queue(nil)
	s.fill(queue, numbers(0, 10)...)
	check(t, s.Qos(3, 0, true))
	got := make(chan amqp.Delivery, 100)
	for range 2 {
		deliveries := s.consume(queue, false, nil)
		go func() {
			for delivery := range deliveries {
				got <- delivery
			}
		}()
	}
	var last uint64
	for range 3 {
		last = max(last, next(t, got).DeliveryTag)
	}
	s.quiet(got)
	check(t, s.Ack(last, true))
	for range 3 {
		next(t, got)
	}
	s.quiet(got)
	check(t, s.Qos(0, 0, true))
	for range 4 {
		next(t, got)
	}
}

func TestAutomaticAcksKnowNoPrefetch(t *testing.T) {
	s := open(t)
	queue := s.queue(nil)
	s.fill(queue, numbers(0, 40)...)
	check(t, s.Qos(1, 0, false))
	equalAll(t, bodies(t, s.consume(queue, true, nil), 40), numbers(0, 40))
}

func TestConsumersTakeTurns(t *testing.T) {
	s := open(t)
	queue := s.queue(nil)
	var all []<-chan amqp.Delivery
	for range 3 {
		all = append(all, s.consume(queue, true, nil))
	}
	s.fill(queue, numbers(0, 30)...)
	for _, deliveries := range all {
		bodies(t, deliveries, 10)
	}
}

func TestHigherConsumerPrioritiesComeFirst(t *testing.T) {
	s := open(t)
	queue := s.queue(nil)
	check(t, s.Qos(2, 0, false))
	low := s.consume(queue, false, amqp.Table{"x-priority": int32(-1)})
	high := s.consume(queue, false, amqp.Table{"x-priority": int32(7)})
	middle := s.consume(queue, false, nil)
	s.fill(queue, numbers(0, 6)...)
	equalAll(t, bodies(t, high, 2), numbers(0, 2))
	equalAll(t, bodies(t, middle, 2), numbers(2, 4))
	equalAll(t, bodies(t, low, 2), numbers(4, 6))
}

func TestASingleActiveConsumerIsFollowedByTheNext(t *testing.T) {
	s := open(t)
	queue := s.queue(amqp.Table{"x-single-active-consumer": true})
	first := s.another()
	active := first.consume(queue, false, nil)
	waiting := s.consume(queue, true, nil)
	s.fill(queue, numbers(0, 3)...)
	equalAll(t, bodies(t, active, 3), numbers(0, 3))
	s.quiet(waiting)
	check(t, first.Close())
	equalAll(t, bodies(t, waiting, 3), numbers(0, 3))
}

func TestAnExclusiveConsumerIsAlone(t *testing.T) {
	s := open(t)
	queue := s.queue(nil)
	own := s.another()
	_, err := own.Consume(queue, "", true, true, false, false, nil)
	check(t, err)
	_, err = s.another().Consume(queue, "", true, false, false, false, nil)
	refused(t, err, amqp.AccessRefused, "exclusive")
	check(t, own.Close())
	s.consume(queue, true, nil)
}

func TestASlowConsumerOfLargeMessagesGetsThemAll(t *testing.T) {
	s := open(t)
	queue := s.queue(nil)
	deliveries := s.consume(queue, true, nil)
	sender := s.elsewhere()
	for at := range 60 {
		body := make([]byte, 400_000)
		body[0] = byte(at)
		sender.publish("", queue, amqp.Publishing{Body: body})
	}
	for at := range 60 {
		delivery := next(t, deliveries)
		equal(t, fmt.Sprintln(len(delivery.Body), delivery.Body[0]), fmt.Sprintln(400_000, at))
	}
}

func TestAReplyReachesItsRequester(t *testing.T) {
	s := open(t)
	const replyTo = "amq.rabbitmq.reply-to"
	replies := s.consume(replyTo, true, nil)
	server := s.elsewhere()
	queue := server.queue(nil)
	for at := range 20 {
		s.publish("", queue, amqp.Publishing{ReplyTo: replyTo, CorrelationId: fmt.Sprint(at), Body: []byte("ask")})
		request := server.arrived(queue)
		server.publish("", request.ReplyTo, amqp.Publishing{CorrelationId: request.CorrelationId, Body: []byte("answer")})
		equal(t, next(t, replies).CorrelationId, fmt.Sprint(at))
	}
	_, err := s.another().Consume(replyTo, "", false, false, false, false, nil)
	refused(t, err, amqp.PreconditionFailed, "")
}
