package main

import (
	"fmt"
	"io"
	"time"

	"github.com/gorm-fanout/fanout/outbox"
)

// view tells a person what happens.
type view struct {
	out    io.Writer
	orders int
	last   time.Time // of the progress
}

func newView(cfg settings) *view {
	v := &view{out: cfg.live, orders: cfg.orders}
	v.printf("A shop on SQLite places %d orders. Each is one transaction: the order and its events, one row per broker.\n", cfg.orders)
	v.printf("  default: in memory, inside the company, every event in full\n")
	v.printf("  partner: a signed webhook of another company, published events only, stripped of what is internal\n")
	v.printf("  carrier: a signed webhook of a third company, shipments only\n")
	v.printf("A consumer in a second process adds up the messages of each broker, in its own database.\n\n")
	return v
}

func (v *view) printf(format string, args ...any) { _, _ = fmt.Fprintf(v.out, format, args...) }

// progress prints a line every second.
func (v *view) progress(now *moment) {
	if time.Since(v.last) < time.Second {
		return
	}
	v.last = time.Now()
	v.printf("  %5d of %d orders", now.placed, v.orders)
	for _, broker := range now.counts {
		var total int64
		for _, n := range broker.Counts {
			total += n
		}
		v.printf(" | %s %d of %d", broker.Broker, broker.Counts[outbox.StatusPublished], total)
	}
	v.printf(" delivered\n")
}

// finish shows the result and one message in both forms.
func (v *view) finish(result *Result) {
	v.printf("\nOne event inside (default):\n  %s\nand outside (partner):\n  %s\n", result.InternalExample, result.ExternalExample)
	v.printf("\n%d orders, %d events: delivered %d to default, %d to partner and %d to carrier; %d lost, %d sent twice.\n", result.Orders, result.Events,
		result.Delivered["default"], result.Delivered["partner"], result.Delivered["carrier"], result.Lost, result.Duplicates)
	v.printf("No event of an order that was rolled back has arrived.\n\n")
	v.projections(result)
	v.printf("Next: the program under \"Use it\" in README.md, then docs/guide.md: a fanout.yaml (config/fanout.example.yaml has every key),\n")
	v.printf("and run \"fanout migrate\" and \"fanout relay\" (go install ./cmd/fanout) against your own database. For consumers: docs/consuming.md.\n")
}

// projections shows the consumer's sums beside the shop's.
func (v *view) projections(result *Result) {
	c := &result.Projection
	v.printf("The consumer's process was killed %d times. Its sums for each broker, under those of the shop's tables:\n\n", result.Kills)
	v.printf("  %-12s %14s %16s %14s %14s\n", "", "orders placed", "revenue in cents", "orders shipped", "stock reserved")
	for _, broker := range []string{"default", "partner", "carrier"} {
		for _, line := range []struct {
			by   string
			sums Projection
		}{{"shop", c.Expected[broker]}, {broker, c.Actual[broker]}} {
			v.printf("  %-12s %14d %16d %14d %14d\n", line.by, line.sums.OrdersPlaced, line.sums.RevenueCents, line.sums.OrdersShipped, line.sums.StockReserved)
		}
	}
	verdict := "The numbers agree, to the cent"
	if !c.Agree {
		verdict = "THE NUMBERS DO NOT AGREE"
	}
	v.printf("\n%s: the consumer got %d messages, and dropped %d of them as copies.\n\n", verdict, result.Deliveries, result.DuplicatesDropped)
}
