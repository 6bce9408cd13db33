package e2e

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// A filter that names a field of the body; the same text stands on bindings and on consumers.
const dear = "b.total > 50 AND land = 'UK'"

// What the broker says of a filter that ends too early.
const brokenFilter, filterRefusal = "b.total >", "invalid x-filter at character 10: expected a value after '>'"

func filtered(text string) amqp.Table {
	return amqp.Table{"x-filter": text}
}

// Publishes JSON bodies with the header `land`.
func (s *session) order(exchange, key, land string, bodies ...string) {
	s.t.Helper()
	s.send(exchange, key, amqp.Publishing{ContentType: "application/json", Headers: amqp.Table{"land": land}}, bodies...)
}

func TestAQueueGetsWhatTheFilterOfItsBindingMatches(t *testing.T) {
	s := open(t)
	exchange := s.exchange("topic", nil)
	matching, rest := s.queue(nil), s.queue(nil)
	check(t, s.QueueBind(matching, "order.#", exchange, false, filtered(dear)))
	check(t, s.QueueBind(rest, "order.#", exchange, false, filtered("NOT ("+dear+")")))
	s.order(exchange, "order.1", "UK", `{"total":51}`, `{"total":50}`)
	s.order(exchange, "order.1", "FR", `{"total":52}`)
	s.order(exchange, "offer.1", "UK", `{"total":53}`)
	equalAll(t, s.drain(matching), []string{`{"total":51}`})
	equalAll(t, s.drain(rest), []string{`{"total":50}`, `{"total":52}`})
}

func TestAConsumerGetsWhatItsFilterMatchesAndTheRestGoesToAnother(t *testing.T) {
	s := open(t)
	queue := s.queue(nil)
	matching := s.consume(queue, true, filtered(dear))
	s.order("", queue, "UK", `{"total":50}`, `{"total":51}`)
	s.order("", queue, "FR", `{"total":52}`)
	s.order("", queue, "UK", `{"total":53}`)
	equalAll(t, bodies(t, matching, 2), []string{`{"total":51}`, `{"total":53}`})
	s.quiet(matching)
	equal(t, s.depth(queue), 2)
	rest := s.another().consume(queue, true, nil)
	equalAll(t, bodies(t, rest, 2), []string{`{"total":50}`, `{"total":52}`})
}

func TestAFilterThatIsNoneSaysWhere(t *testing.T) {
	s := open(t)
	queue := s.queue(nil)
	binding := s.another()
	binding.closes(406, filterRefusal, func() error {
		return binding.QueueBind(queue, "", "amq.fanout", false, filtered(brokenFilter))
	})
	consuming := s.another()
	consuming.closes(406, filterRefusal, func() error {
		_, err := consuming.Consume(queue, "", true, false, false, false, filtered(brokenFilter))
		return err
	})
}
