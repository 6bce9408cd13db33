package e2e

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestRefusalsOfAChannel(t *testing.T) {
	missing := unique("missing")
	cases := []struct {
		name  string
		code  int
		words string
		use   func(s *session, queue string) error
	}{
		{"passive declare", 404, "no queue", func(s *session, queue string) error {
			_, err := s.QueueDeclarePassive(missing, false, false, false, false, nil)
			return err
		}},
		{"reserved queue", 403, "amq.", func(s *session, queue string) error {
			_, err := s.QueueDeclare("amq."+missing, false, false, true, false, nil)
			return err
		}},
		{"other arguments", 406, "inequivalent arg 'x-max-length'", func(s *session, queue string) error {
			_, err := s.QueueDeclare(queue, false, false, true, false, amqp.Table{"x-max-length": 1})
			return err
		}},
		{"other exclusivity", 405, "RESOURCE_LOCKED", func(s *session, queue string) error {
			_, err := s.QueueDeclare(queue, false, false, false, false, nil)
			return err
		}},
		{"argument of a wrong type", 406, "x-message-ttl", func(s *session, queue string) error {
			_, err := s.QueueDeclare("", false, false, true, false, amqp.Table{"x-message-ttl": "soon"})
			return err
		}},
		{"argument out of range", 406, "x-max-priority", func(s *session, queue string) error {
			_, err := s.QueueDeclare("", false, false, true, false, amqp.Table{"x-max-priority": 256})
			return err
		}},
		{"bind to a missing exchange", 404, "no exchange", func(s *session, queue string) error {
			return s.QueueBind(queue, "k", missing, false, nil)
		}},
		{"bind a missing queue", 404, "no queue", func(s *session, queue string) error {
			return s.QueueBind(missing, "k", "amq.direct", false, nil)
		}},
		{"bind to the default exchange", 403, "ACCESS_REFUSED", func(s *session, queue string) error {
			return s.QueueBind(queue, "k", "", false, nil)
		}},
		{"purge", 404, "no queue", func(s *session, queue string) error {
			_, err := s.QueuePurge(missing, false)
			return err
		}},
		{"missing exchange", 404, "no exchange '" + missing + "' in vhost '/'", func(s *session, queue string) error {
			return s.ExchangeDeclarePassive(missing, "direct", false, false, false, false, nil)
		}},
		{"other type", 406, "inequivalent arg 'type'", func(s *session, queue string) error {
			return s.ExchangeDeclare("amq.topic", "direct", true, false, false, false, nil)
		}},
		{"reserved exchange", 403, "amq.", func(s *session, queue string) error {
			return s.ExchangeDeclare("amq."+missing, "direct", false, true, false, false, nil)
		}},
		{"delete a predeclared exchange", 403, "amq.fanout", func(s *session, queue string) error {
			return s.ExchangeDelete("amq.fanout", false, false)
		}},
		{"bind a missing exchange", 404, "no exchange", func(s *session, queue string) error {
			return s.ExchangeBind(missing, "k", "amq.direct", false, nil)
		}},
		{"consume", 404, "no queue", func(s *session, queue string) error {
			_, err := s.Consume(missing, "", false, false, false, false, nil)
			return err
		}},
		{"consumer priority", 406, "x-priority", func(s *session, queue string) error {
			_, err := s.Consume(queue, "", false, false, false, false, amqp.Table{"x-priority": "first"})
			return err
		}},
		{"get", 404, "no queue", func(s *session, queue string) error {
			_, _, err := s.Get(missing, true)
			return err
		}},
		{"ack", 406, "unknown delivery tag 3", func(s *session, queue string) error { return s.Ack(3, false) }},
		{"nack", 406, "unknown delivery tag 3", func(s *session, queue string) error { return s.Nack(3, false, true) }},
		{"reject", 406, "unknown delivery tag 3", func(s *session, queue string) error { return s.Reject(3, true) }},
		{"publish", 404, "no exchange", func(s *session, queue string) error {
			return s.PublishWithContext(s.t.Context(), missing, "k", false, false, amqp.Publishing{})
		}},
		{"expiration", 406, "expiration", func(s *session, queue string) error {
			return s.PublishWithContext(s.t.Context(), "", queue, false, false, amqp.Publishing{Expiration: "1.5"})
		}},
		{"user", 406, "user_id", func(s *session, queue string) error {
			return s.PublishWithContext(s.t.Context(), "", queue, false, false, amqp.Publishing{UserId: "other"})
		}},
		{"commit without a transaction", 406, "not transactional", func(s *session, queue string) error { return s.TxCommit() }},
		{"transaction with confirms", 406, "", func(s *session, queue string) error {
			check(s.t, s.Confirm(false))
			return s.Tx()
		}},
		{"confirms with a transaction", 406, "", func(s *session, queue string) error {
			check(s.t, s.Tx())
			return s.Confirm(false)
		}},
	}
	for _, one := range cases {
		t.Run(one.name, func(t *testing.T) {
			s := open(t)
			name := unique("queue")
			_, err := s.QueueDeclare(name, false, false, true, false, nil)
			check(t, err)
			used := s.another()
			used.closes(one.code, one.words, func() error { return one.use(used, name) })
			equal(t, s.depth(name), 0)
		})
	}
}

func TestRefusalsOfAConnection(t *testing.T) {
	cases := map[string]struct {
		code int
		use  func(s *session, queue string) error
	}{
		"prefetch size":           {540, func(s *session, queue string) error { return s.Qos(0, 10, false) }},
		"recover without requeue": {540, func(s *session, queue string) error { return s.Recover(false) }},
		"immediate": {540, func(s *session, queue string) error {
			return s.PublishWithContext(s.t.Context(), "", queue, false, true, amqp.Publishing{})
		}},
		"flow off": {540, func(s *session, queue string) error { return s.Flow(false) }},
	}
	for name, one := range cases {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			queue := s.queue(nil)
			closed := s.connection.NotifyClose(make(chan *amqp.Error, 1))
			_ = one.use(s, queue)
			refused(t, next(t, closed), one.code, "NOT_IMPLEMENTED")
		})
	}
}

func TestAnExclusiveQueueIsLockedToItsConnection(t *testing.T) {
	uses := map[string]func(s *session, queue string) error{
		"declare": func(s *session, queue string) error {
			_, err := s.QueueDeclare(queue, false, false, true, false, nil)
			return err
		},
		"passive declare": func(s *session, queue string) error {
			_, err := s.QueueDeclarePassive(queue, false, false, true, false, nil)
			return err
		},
		"bind": func(s *session, queue string) error { return s.QueueBind(queue, "k", "amq.direct", false, nil) },
		"consume": func(s *session, queue string) error {
			_, err := s.Consume(queue, "", true, false, false, false, nil)
			return err
		},
		"get": func(s *session, queue string) error {
			_, _, err := s.Get(queue, true)
			return err
		},
		"purge": func(s *session, queue string) error {
			_, err := s.QueuePurge(queue, false)
			return err
		},
		"delete": func(s *session, queue string) error {
			_, err := s.QueueDelete(queue, false, false, false)
			return err
		},
	}
	for name, use := range uses {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			queue := unique("queue")
			_, err := s.QueueDeclare(queue, false, false, true, false, nil)
			check(t, err)
			refused(t, use(s.elsewhere(), queue), amqp.ResourceLocked, queue)
			equal(t, s.depth(queue), 0)
		})
	}
}

func TestAnInternalExchangeTakesNoPublishes(t *testing.T) {
	s := open(t)
	name := unique("exchange")
	check(t, s.ExchangeDeclare(name, "fanout", false, true, true, false, nil))
	s.closes(403, "internal", func() error {
		return s.PublishWithContext(t.Context(), name, "", false, false, amqp.Publishing{})
	})
	check(t, s.another().ExchangeDelete(name, false, false))
}

func TestAMissingExchangeClosesTheChannelAgainAndAgain(t *testing.T) {
	s := open(t)
	for range 20 {
		own := s.another()
		own.closes(404, "no exchange", func() error {
			for range 5 {
				_ = own.PublishWithContext(t.Context(), unique("exchange"), "", false, false, amqp.Publishing{})
			}
			return nil
		})
	}
	s.queue(nil)
}
