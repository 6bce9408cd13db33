package e2e

import (
	"fmt"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestADirectExchangeRoutesByEqualKeys(t *testing.T) {
	s := open(t)
	exchange := s.exchange("direct", nil)
	one, both := s.bound(exchange, "one"), s.bound(exchange, "one")
	check(t, s.QueueBind(both, "two", exchange, false, nil))
	for _, key := range []string{"one", "two", "three", ""} {
		s.send(exchange, key, amqp.Publishing{}, key)
	}
	equalAll(t, s.drain(one), []string{"one"})
	equalAll(t, s.drain(both), []string{"one", "two"})
}

func TestAFanoutExchangeReachesEveryQueue(t *testing.T) {
	s := open(t)
	exchange := s.exchange("fanout", nil)
	var queues []string
	for range 30 {
		queues = append(queues, s.bound(exchange, "ignored"))
	}
	s.send(exchange, "any", amqp.Publishing{}, numbers(0, 10)...)
	for _, queue := range queues {
		equalAll(t, s.drain(queue), numbers(0, 10))
	}
}

func TestATopicExchangeMatchesWords(t *testing.T) {
	s := open(t)
	exchange := s.exchange("topic", nil)
	cases := map[string][]string{
		"a.b.c":   {"a.b.c"},
		"a.*.c":   {"a.b.c", "a..c"},
		"a.#":     {"a", "a.b", "a.b.c", "a..c"},
		"#.c":     {"a.b.c", "a..c", "c"},
		"#":       {"a", "a.b", "a.b.c", "a..c", "c", "", "x.y.z.w"},
		"*":       {"a", "c"},
		"*.*":     {"a.b"},
		"#.b.#":   {"a.b", "a.b.c"},
		"x.#.w.#": {"x.y.z.w"},
		"a.b.":    {},
	}
	queues := map[string]string{}
	for pattern := range cases {
		queues[pattern] = s.bound(exchange, pattern)
	}
	for _, key := range []string{"a", "a.b", "a.b.c", "a..c", "c", "", "x.y.z.w"} {
		s.send(exchange, key, amqp.Publishing{}, key)
	}
	for pattern, want := range cases {
		if got := s.drain(queues[pattern]); strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%q matched %q, want %q", pattern, got, want)
		}
	}
}

func TestAHeadersExchangeComparesHeaders(t *testing.T) {
	s := open(t)
	exchange := s.exchange("headers", nil)
	bindings := map[string]amqp.Table{
		"all":      {"x-match": "all", "colour": "red", "size": int32(3)},
		"any":      {"x-match": "any", "colour": "red", "size": int32(3)},
		"presence": {"x-match": "all", "colour": nil},
		"default":  {"size": int32(3)},
	}
	queues := map[string]string{}
	for name, arguments := range bindings {
		queues[name] = s.queue(nil)
		check(t, s.QueueBind(queues[name], "", exchange, false, arguments))
	}
	messages := map[string]amqp.Table{
		"both":   {"colour": "red", "size": int32(3), "more": true},
		"colour": {"colour": "red"},
		"size":   {"colour": "blue", "size": int32(3)},
		"none":   {"shape": "round"},
	}
	for _, name := range []string{"both", "colour", "size", "none"} {
		s.send(exchange, "", amqp.Publishing{Headers: messages[name]}, name)
	}
	equalAll(t, s.drain(queues["all"]), []string{"both"})
	equalAll(t, s.drain(queues["any"]), []string{"both", "colour", "size"})
	equalAll(t, s.drain(queues["presence"]), []string{"both", "colour", "size"})
	equalAll(t, s.drain(queues["default"]), []string{"both", "size"})
}

func TestExchangesBindToExchanges(t *testing.T) {
	s := open(t)
	first, second, third := s.exchange("fanout", nil), s.exchange("topic", nil), s.exchange("direct", nil)
	check(t, s.ExchangeBind(second, "", first, false, nil))
	check(t, s.ExchangeBind(third, "#", second, false, nil))
	check(t, s.ExchangeBind(first, "k", third, false, nil))
	queue := s.bound(third, "k")
	check(t, s.QueueBind(queue, "", first, false, nil))
	s.send(first, "k", amqp.Publishing{}, "once, although the bindings form a circle")
	equal(t, len(s.drain(queue)), 1)
	check(t, s.ExchangeUnbind(first, "k", third, false, nil))
	check(t, s.ExchangeUnbind(first, "never bound", third, false, nil))
	check(t, s.ExchangeUnbind(second, "", first, false, nil))
	s.send(second, "k", amqp.Publishing{}, "still")
	equalAll(t, s.drain(queue), []string{"still"})
}

func TestAnAlternateExchangeTakesWhatFoundNoQueue(t *testing.T) {
	s := open(t)
	last := s.exchange("fanout", nil)
	spill := s.bound(last, "")
	middle := s.exchange("direct", amqp.Table{"alternate-exchange": last})
	first := s.exchange("direct", amqp.Table{"alternate-exchange": middle})
	queue, aside := s.bound(first, "main"), s.bound(middle, "aside")
	for _, key := range []string{"main", "aside", "unknown"} {
		s.send(first, key, amqp.Publishing{}, key)
	}
	equalAll(t, s.drain(queue), []string{"main"})
	equalAll(t, s.drain(aside), []string{"aside"})
	got := s.take(spill, true)
	equal(t, got.Exchange+" "+got.RoutingKey, first+" unknown")
}

func TestAutoDeleteExchangesGoWithTheirBindings(t *testing.T) {
	s := open(t)
	source, target := s.exchange("fanout", nil), s.exchange("fanout", nil)
	check(t, s.ExchangeBind(target, "", source, false, nil))
	queue := s.bound(target, "")
	_, err := s.QueueDelete(queue, false, false, false)
	check(t, err)
	for _, name := range []string{source, target} {
		err := s.another().ExchangeDeclarePassive(name, "fanout", false, true, false, false, nil)
		refused(t, err, amqp.NotFound, name)
	}
}

func TestAnExchangeInUseStays(t *testing.T) {
	s := open(t)
	exchange := s.exchange("direct", nil)
	s.bound(exchange, "k")
	refused(t, s.another().ExchangeDelete(exchange, true, false), amqp.PreconditionFailed, "in use")
	check(t, s.ExchangeDelete(exchange, false, false))
	check(t, s.ExchangeDelete(exchange, false, false))
}

func TestTheBrokersOwnExchangesAreThere(t *testing.T) {
	s := open(t)
	for name, kind := range map[string]string{"amq.direct": "direct", "amq.fanout": "fanout", "amq.topic": "topic",
		"amq.headers": "headers", "amq.match": "headers"} {
		check(t, s.ExchangeDeclare(name, kind, true, false, false, false, nil))
	}
}

func TestAConsistentHashKeepsKeysInPlace(t *testing.T) {
	s := open(t)
	declaring, exchange := s.elsewhere(), unique("exchange")
	if err := declaring.ExchangeDeclare(exchange, "x-consistent-hash", false, true, false, false, nil); err != nil {
		if s.onErlang() {
			t.Skip("the plugin is not enabled")
		}
		t.Fatal(err)
	}
	queues := []string{s.bound(exchange, "1"), s.bound(exchange, "1"), s.bound(exchange, "2")}
	for range 2 {
		for _, key := range numbers(0, 400) {
			s.publish(exchange, key, amqp.Publishing{Body: []byte(key)})
		}
	}
	home, count := map[string]string{}, 0
	until(t, "all have arrived", func() bool {
		return s.depth(queues[0])+s.depth(queues[1])+s.depth(queues[2]) == 800
	})
	for _, queue := range queues {
		share := s.drain(queue)
		count += len(share)
		if len(share) < 80 {
			t.Errorf("a share of only %d", len(share))
		}
		for _, key := range share {
			if known, ok := home[key]; ok && known != queue {
				t.Errorf("%s lies in two queues", key)
			}
			home[key] = queue
		}
	}
	equal(t, count, 800)
}

func TestDeclaringTellsNameMessagesAndConsumers(t *testing.T) {
	s := open(t)
	name := unique("queue")
	declared, err := s.QueueDeclare(name, false, false, true, false, nil)
	check(t, err)
	equal(t, declared, amqp.Queue{Name: name})
	s.fill(name, "a", "b")
	deliveries := s.consume(name, false, nil)
	bodies(t, deliveries, 2)
	declared, err = s.QueueDeclare(name, false, false, true, false, nil)
	check(t, err)
	equal(t, declared, amqp.Queue{Name: name, Consumers: 1})
}

func TestTheBrokerNamesQueues(t *testing.T) {
	s := open(t)
	one, two := s.queue(nil), s.queue(nil)
	if !strings.HasPrefix(one, "amq.gen-") || one == two {
		t.Fatalf("names %q and %q", one, two)
	}
}

func TestAnEmptyNameMeansTheLastQueue(t *testing.T) {
	s := open(t)
	_, _, err := s.another().Get("", true)
	refused(t, err, amqp.NotFound, "no previously declared queue")
	queue := s.queue(nil)
	s.fill(queue, "last")
	equal(t, string(s.take("", true).Body), "last")
}

func TestEqualArgumentsOfOtherWidthsAreEqual(t *testing.T) {
	s := open(t)
	name := unique("queue")
	for _, length := range []any{byte(9), int16(9), int32(9), int64(9), 9} {
		_, err := s.QueueDeclare(name, false, false, true, false, amqp.Table{"x-max-length": length, "unknown": length})
		check(t, err)
	}
}

func TestAnExclusiveQueueGoesWithItsConnection(t *testing.T) {
	s := open(t)
	owner, name := s.elsewhere(), unique("queue")
	_, err := owner.QueueDeclare(name, true, false, true, false, nil)
	check(t, err)
	check(t, owner.connection.Close())
	_, err = s.QueueDeclarePassive(name, true, false, true, false, nil)
	refused(t, err, amqp.NotFound, name)
}

func TestAnAutoDeleteQueueGoesWithItsLastConsumer(t *testing.T) {
	s := open(t)
	name := unique("queue")
	_, err := s.QueueDeclare(name, false, true, false, false, nil)
	check(t, err)
	for _, tag := range []string{"one", "two"} {
		_, err := s.Consume(name, tag, true, false, false, false, nil)
		check(t, err)
	}
	check(t, s.Cancel("one", false))
	equal(t, s.depth(name), 0)
	check(t, s.Cancel("two", false))
	_, err = s.QueueDeclarePassive(name, false, true, false, false, nil)
	refused(t, err, amqp.NotFound, name)
}

func TestPurgeAndDeleteCount(t *testing.T) {
	s := open(t)
	queue := s.queue(nil)
	s.fill(queue, numbers(0, 7)...)
	held := s.take(queue, false)
	count, err := s.QueuePurge(queue, false)
	check(t, err)
	equal(t, count, 6)
	check(t, held.Nack(false, true))
	until(t, "the held one is back", func() bool { return s.depth(queue) == 1 })
	_, err = s.another().QueueDelete(queue, false, true, false)
	refused(t, err, amqp.PreconditionFailed, "not empty")
	count, err = s.QueueDelete(queue, false, false, false)
	check(t, err)
	equal(t, count, 1)
	count, err = s.QueueDelete(queue, false, false, false)
	check(t, err)
	equal(t, count, 0)
}

func TestRequestsWithoutAnswer(t *testing.T) {
	s := open(t)
	queue, exchange, target := unique("queue"), unique("exchange"), unique("exchange")
	_, err := s.QueueDeclare(queue, false, false, true, true, nil)
	check(t, err)
	check(t, s.ExchangeDeclare(exchange, "direct", false, true, false, true, nil))
	check(t, s.ExchangeDeclare(target, "fanout", false, true, false, true, nil))
	check(t, s.ExchangeBind(target, "via", exchange, true, nil))
	check(t, s.QueueBind(queue, "k", exchange, true, nil))
	check(t, s.QueueBind(queue, "", target, true, nil))
	deliveries, err := s.Consume(queue, "tag", true, false, false, true, nil)
	check(t, err)
	s.publish(exchange, "k", amqp.Publishing{Body: []byte("direct")})
	s.publish(exchange, "via", amqp.Publishing{Body: []byte("through")})
	equalAll(t, bodies(t, deliveries, 2), []string{"direct", "through"})
	check(t, s.Cancel("tag", true))
	check(t, s.ExchangeUnbind(target, "via", exchange, true, nil))
	_, err = s.QueuePurge(queue, true)
	check(t, err)
	_, err = s.QueueDelete(queue, false, false, true)
	check(t, err)
	_, err = s.QueueDeclarePassive(queue, false, false, true, false, nil)
	refused(t, err, amqp.NotFound, queue)
}

func TestWhatWasAnsweredIsSeenElsewhere(t *testing.T) {
	s := open(t)
	other := s.elsewhere()
	for round := range 50 {
		queue := fmt.Sprintf("%s.%d", unique("queue"), round)
		_, err := s.QueueDeclare(queue, false, false, false, false, nil)
		check(t, err)
		check(t, other.QueueBind(queue, queue, "amq.topic", false, nil))
		s.send("amq.topic", queue, amqp.Publishing{}, "x")
		equal(t, string(other.take(queue, true).Body), "x")
		_, err = other.QueueDelete(queue, false, false, false)
		check(t, err)
		_, err = s.another().QueueDeclarePassive(queue, false, false, false, false, nil)
		refused(t, err, amqp.NotFound, queue)
	}
}

func TestAnUnusedLeasedQueueGoes(t *testing.T) {
	s := open(t)
	name := unique("queue")
	_, err := s.QueueDeclare(name, false, false, false, false, amqp.Table{"x-expires": int32(2000)})
	check(t, err)
	until(t, "the lease is over", func() bool {
		// Unlike a declare or a get, a bind does not renew the lease.
		return s.another().QueueBind(name, name, "amq.direct", false, nil) != nil
	})
}
