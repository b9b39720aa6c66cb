package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A typing error does not look like work that is done: each command says which name is unknown, and
// which there is, and fails.
func TestUnknownNames(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *shop) {
		s.badNight()
		s.write(20, "Ordering.OrderPlaced.v1", "ordering::order-42", "default")
		s.does("messages", "abandon", "--id", messageID(20))
		broker := `there is no broker "partnr", in the configuration or in a table: did you mean "partner"?`
		class := `there is no error class "permnent": did you mean "permanent"?`
		eventType := `no message has the type "Ordering.OrderPlacd.v1": did you mean "Ordering.OrderPlaced.v1"?`
		id := "there is no message " + messageID(99) + ": it was purged, or never committed"
		for args, want := range map[string]string{
			"messages list --broker partnr":                                            broker,
			"messages requeue --broker partnr":                                         broker,
			"messages abandon --broker partnr --yes":                                   broker,
			"messages replay --broker partnr --since 1h":                               broker,
			"messages unblock order-1 --broker partnr":                                 broker,
			"messages blocked --broker partnr":                                         broker,
			"messages failures --broker partnr --json":                                 broker,
			"broker pause partnr":                                                      broker,
			"messages unblock order-42 --broker default":                               `main: did you mean the key "ordering::order-42"?`,
			"messages list --key Order-1":                                              `no message has the ordering key "Order-1": did you mean "order-1"?`,
			"messages list --type Ordering.OrderPlacd.v1":                              eventType,
			"messages replay --broker default --since 1h --type OrderShipped":          `no message has the type "OrderShipped": did you mean "Ordering.OrderShipped.v1"?`,
			"messages list --type Billing.*":                                           `no message has the type "Billing.*": there are ["Ordering.OrderPlaced.v1" "Ordering.OrderShipped.v1"]`,
			"messages list --error-class permnent":                                     class,
			"messages list --id " + messageID(99):                                      id,
			"messages show " + messageID(99):                                           id,
			"messages replay --broker default --id " + messageID(99):                   id,
			"messages list --fingerprint 0123456789ab":                                 "no failed or abandoned message has the fingerprint 0123456789ab",
			"messages list --broker partnr --type Ordering.OrderPlacd.v1 --status due": "", // wrong usage comes first
		} {
			code, stdout, stderr := s.run(strings.Fields(args)...)
			if want == "" {
				assert.Equal(t, exitUsage, code, args)
				continue
			}
			assert.Equal(t, exitFailed, code, args)
			assert.Contains(t, stderr, "fanout: "+want, args)
			assert.True(t, stdout == "" || strings.HasPrefix(stdout, "main: "), "%s: %s", args, stdout)
		}
		code, _, stderr := s.run("messages", "list", "--broker", "partnr", "--type", "Ordering.OrderPlacd.v1")
		assert.Equal(t, exitFailed, code)
		assert.Equal(t, "fanout: "+broker+"; "+eventType+"\n", stderr, "all at once")

		// Of several messages those are named that are not there, and the others are dealt with.
		code, stdout, stderr := s.run("messages", "requeue", "--id", messageID(1)+","+messageID(98)+","+messageID(99))
		assert.Equal(t, exitFailed, code)
		assert.Equal(t, "main: 1 row requeued; left alone: 1 published\n", stdout)
		assert.Equal(t, "fanout: there are no messages "+messageID(98)+", "+messageID(99)+": they were purged, or never committed\n", stderr)

		// Where every name is known there may be nothing to do.
		for args, want := range map[string]string{
			"messages list --broker partner --status published": "",
			"messages list --key order-12 --status failed":      "",
			"messages requeue --key order-12 --status failed":   "main: 0 rows requeued\n",
			"messages requeue --error-class crashed":            "main: 0 rows requeued\n",
			"messages unblock order-12 --broker partner":        "main: key order-12 of broker partner is not blocked\n",
			"messages blocked --broker default":                 "",
			"messages requeue --id " + messageID(7):             "main: 0 rows requeued; left alone: 1 due, 1 published\n",
			"purge --broker partner --published-before 1h":      "main: 0 rows removed\n",
			"broker resume default":                             "main: broker default was not paused\n",
		} {
			code, stdout, stderr := s.run(strings.Fields(args)...)
			assert.Zero(t, code, "%s: %s", args, stderr)
			assert.Equal(t, want, stdout, args)
		}
	})
}

// A broker that is not in the configuration and has rows, or a pause, is known.
func TestUnconfiguredBrokersAreKnown(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *shop) {
		s.write(1, "T", "k", "old")
		assert.Equal(t, "main: 0 rows removed\n", s.does("purge", "--broker", "old", "--published-before", "1h"))
		code, _, stderr := s.run("broker", "pause", "old")
		assert.Equal(t, exitUsage, code)
		assert.Contains(t, stderr, `pause: the configuration has no broker "old": there are ["default" "partner"]`)
		assert.Equal(t, "main: broker old was not paused\n", s.does("broker", "resume", "old"))
	})
}
