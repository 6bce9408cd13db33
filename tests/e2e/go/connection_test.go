package e2e

import (
	"bytes"
	"fmt"
	"math/rand"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestTheServerNamesItsVersionAndCapabilities(t *testing.T) {
	s := open(t)
	equal(t, s.connection.Major, 0)
	equal(t, s.connection.Minor, 9)
	capabilities, ok := s.connection.Properties["capabilities"].(amqp.Table)
	equal(t, ok, true)
	for _, name := range []string{"publisher_confirms", "exchange_exchange_bindings", "basic.nack",
		"consumer_cancel_notify", "connection.blocked", "authentication_failure_close"} {
		equal(t, capabilities[name], any(true))
	}
}

func TestBothPasswordMechanismsWork(t *testing.T) {
	t.Parallel()
	uri, err := amqp.ParseURI(address())
	check(t, err)
	for _, mechanism := range []amqp.Authentication{uri.PlainAuth(), uri.AMQPlainAuth()} {
		connection := dialConfig(t, address(), amqp.Config{SASL: []amqp.Authentication{mechanism}, Locale: "en_US"})
		channel(t, connection)
	}
}

func TestAWrongPasswordIsRefused(t *testing.T) {
	t.Parallel()
	uri, err := amqp.ParseURI(address())
	check(t, err)
	uri.Password = "not the password"
	_, err = amqp.Dial(uri.String())
	refused(t, err, amqp.AccessRefused, "")
}

func TestAnUnknownVhostIsRefused(t *testing.T) {
	t.Parallel()
	_, err := amqp.DialConfig(address(), amqp.Config{Vhost: unique("vhost"), Locale: "en_US"})
	refused(t, err, amqp.NotAllowed, "")
}

func TestAQuietConnectionWithOneSecondHeartbeatsStaysOpen(t *testing.T) {
	t.Parallel()
	connection := dialConfig(t, address(), amqp.Config{Heartbeat: time.Second, Locale: "en_US"})
	equal(t, connection.Config.Heartbeat, time.Second)
	time.Sleep(4 * time.Second)
	equal(t, connection.IsClosed(), false)
	channel(t, connection)
}

func TestNegotiatedLimitsAreTheClientsWhenLower(t *testing.T) {
	t.Parallel()
	connection := dialConfig(t, address(), amqp.Config{ChannelMax: 5, FrameSize: 8192, Locale: "en_US"})
	equal(t, connection.Config.ChannelMax, 5)
	equal(t, connection.Config.FrameSize, 8192)
	var channels []*amqp.Channel
	for range 5 {
		channels = append(channels, channel(t, connection))
	}
	if _, err := connection.Channel(); err == nil {
		t.Fatal("a channel above the limit")
	}
	for _, opened := range channels {
		check(t, opened.Close())
	}
	for range 5 {
		channel(t, connection)
	}
}

func TestLargeBodiesPassWithAnyFrameSize(t *testing.T) {
	for _, size := range []int{4096, 70_000, 131_072} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			connection := dialConfig(t, address(), amqp.Config{FrameSize: size, Locale: "en_US"})
			s := &session{t, connection, channel(t, connection)}
			body := make([]byte, 1_000_003)
			rand.New(rand.NewSource(1)).Read(body)
			queue := s.queue(nil)
			s.publish("", queue, amqp.Publishing{Body: body})
			if !bytes.Equal(s.arrived(queue).Body, body) {
				t.Fatal("the body came back changed")
			}
		})
	}
}

func TestChannelsComeAndGoInATightLoop(t *testing.T) {
	s := open(t)
	var loops sync.WaitGroup
	for range 4 {
		loops.Go(func() {
			for range 250 {
				opened, err := s.connection.Channel()
				if err == nil {
					err = opened.Close()
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	loops.Wait()
	s.queue(nil)
}

func TestManyPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	s := open(t)
	var loops sync.WaitGroup
	for at := range 50 {
		own := s.another()
		loops.Go(func() {
			name := fmt.Sprintf("%s.%d", unique("queue"), at)
			for range 20 {
				declared, err := own.QueueDeclare(name, false, false, true, false, nil)
				if err != nil || declared.Name != name {
					t.Errorf("declared %q as %q: %v", name, declared.Name, err)
				}
			}
		})
	}
	loops.Wait()
}

func TestARefusalClosesOneChannelAndLeavesTheOthers(t *testing.T) {
	s := open(t)
	other := s.another()
	name := unique("queue")
	_, err := s.QueueDeclarePassive(name, false, false, false, false, nil)
	refused(t, err, amqp.NotFound, "no queue '"+name+"' in vhost '/'")
	equal(t, s.IsClosed(), true)
	other.queue(nil)
	equal(t, s.connection.IsClosed(), false)
}

func TestClosingTellsListenersWithoutAnError(t *testing.T) {
	s := open(t)
	closed := s.connection.NotifyClose(make(chan *amqp.Error, 1))
	check(t, s.connection.Close())
	if err, isOpen := <-closed; isOpen {
		t.Fatalf("closed with %v", err)
	}
	if err := s.PublishWithContext(t.Context(), "", "x", false, false, amqp.Publishing{}); err == nil {
		t.Fatal("published on a closed connection")
	}
}

func TestTheSecretMayBeRenewed(t *testing.T) {
	s := open(t)
	uri, err := amqp.ParseURI(address())
	check(t, err)
	check(t, s.connection.UpdateSecret(uri.Password, "rotation"))
	s.queue(nil)
}

func TestFlowOnIsAnswered(t *testing.T) {
	s := open(t)
	check(t, s.Flow(true))
	s.queue(nil)
}

func TestANamedConnectionOpens(t *testing.T) {
	t.Parallel()
	properties := amqp.NewConnectionProperties()
	properties.SetClientConnectionName(unique("connection"))
	channel(t, dialConfig(t, address(), amqp.Config{Properties: properties, Locale: "en_US"}))
}
