package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/outbox"
)

// view tells a person what happens. On a terminal the last lines are drawn again and again;
// elsewhere a line is printed every second, so that a log stays short.
type view struct {
	out      io.Writer
	terminal bool
	orders   int
	drawn    int // lines to go back
	last     time.Time
}

func newView(cfg settings) *view {
	v := &view{out: cfg.live, terminal: cfg.terminal, orders: cfg.orders}
	if v.out == nil {
		v.out = io.Discard
	}
	v.printf("A shop on SQLite places %d orders. Each is one transaction: the order and its events, one row per broker.\n", cfg.orders)
	v.printf("  default: Redis Streams, inside the company, every event in full\n")
	v.printf("  partner: Google Pub/Sub, another company, published events only, stripped of what is internal\n")
	v.printf("  carrier: a signed webhook, for a company without a broker, shipments only\n")
	v.printf("Beside it a consumer, a process of its own, adds up what it hears from the first two, in its own database.\n\n")
	return v
}

// serves says where the dashboard is.
func (v *view) serves(url string) {
	v.printf("The dashboard is at %s while this runs, and you are its operator.\n\n", url)
}

// stays says that the dashboard outlives the result.
func (v *view) stays(url string) {
	v.printf("\nThe dashboard stays at %s until you press Enter.\n", url)
}

func (v *view) printf(format string, args ...any) { _, _ = fmt.Fprintf(v.out, format, args...) }

// sayf prints a line that stays.
func (v *view) sayf(format string, args ...any) {
	v.erase()
	v.printf("» "+format+"\n\n", args...)
	v.last = time.Time{} // and what follows is drawn at once
}

func (v *view) erase() {
	if v.drawn > 0 {
		v.printf("\x1b[%dA\x1b[J", v.drawn)
		v.drawn = 0
	}
}

const barWidth = 30

// progress draws the bar and the rows of each broker by state.
func (v *view) progress(now *moment, p *projector) {
	if !v.terminal && time.Since(v.last) < time.Second {
		return
	}
	v.last = time.Now()
	v.erase()
	var total, done int64
	lines := []string{}
	for _, broker := range now.counts {
		var sum int64
		for _, n := range broker.Counts {
			sum += n
		}
		total += sum
		done += broker.Counts[outbox.StatusPublished]
		lines = append(lines, fmt.Sprintf("  %-8s %6d pending %6d processing %6d failed %6d published %6d abandoned", broker.Broker,
			broker.Counts[outbox.StatusPending], broker.Counts[outbox.StatusProcessing], broker.Counts[outbox.StatusFailed],
			broker.Counts[outbox.StatusPublished], broker.Counts[outbox.StatusAbandoned]))
	}
	delivered, duplicates := p.reports.numbers()
	lines = append(lines, fmt.Sprintf("  %-8s %6d messages, of which %d were copies and changed nothing", "consumer", delivered, duplicates))
	filled := 0
	if total > 0 {
		// Orders that are still to come count as work to do.
		expected := max(total*int64(v.orders)/int64(max(now.placed, 1)), total)
		filled = int(done * barWidth / expected)
	}
	v.printf("  [%s%s] %d of %d orders placed, %d of %d rows delivered\n%s\n", strings.Repeat("█", filled), strings.Repeat("·", barWidth-filled),
		now.placed, v.orders, done, total, strings.Join(lines, "\n"))
	if v.terminal {
		v.drawn = 1 + len(lines)
	}
}

// done draws the progress for the last time, and lets it stand.
func (v *view) done(now *moment, p *projector) {
	v.last = time.Time{}
	v.progress(now, p)
	v.drawn = 0
}

// finish shows the result and one message in both forms.
func (v *view) finish(result *Result) {
	v.printf("\nThe same event, inside and outside:\n\n")
	v.sideBySide("internal (default)", result.InternalExample, "external (partner)", result.ExternalExample)
	v.printf("\n%d orders, %d events: delivered %d to default, %d to partner and %d to carrier; %d lost, %d sent twice.\n", result.Orders, result.Events,
		result.Delivered["default"], result.Delivered["partner"], result.Delivered["carrier"], result.Lost, result.Duplicates)
	v.printf("Orders that were rolled back were never heard of.\n\n")
	v.projections(result)
	v.printf("Next: the program under \"Use it\" in README.md, then docs/guide.md: a fanout.yaml (config/fanout.example.yaml has every key),\n")
	v.printf("and run \"fanout migrate\" and \"fanout relay\" (go install ./cmd/fanout) against your own database. For consumers: docs/consuming.md.\n")
}

// projections shows what the consumers have arrived at, beside what the shop's tables say.
func (v *view) projections(result *Result) {
	c := &result.Projection
	v.printf("What consumers have made of it, whose process was killed %d times, and what the shop's tables say:\n\n", result.Kills)
	v.printf("  %-16s %14s %14s %14s\n", "", "shop", "by default", "by partner")
	for _, line := range []struct {
		name  string
		value func(Projection) int64
	}{
		{"orders placed", func(p Projection) int64 { return p.OrdersPlaced }},
		{"revenue in cents", func(p Projection) int64 { return p.RevenueCents }},
		{"orders shipped", func(p Projection) int64 { return p.OrdersShipped }},
		{"stock reserved", func(p Projection) int64 { return p.StockReserved }},
	} {
		outside := strconv.FormatInt(line.value(c.Actual[partner]), 10)
		if line.value(c.Expected[partner]) == 0 && outside == "0" {
			outside = "internal"
		}
		v.printf("  %-16s %14d %14d %14s\n", line.name, line.value(c.Expected[warehouse]), line.value(c.Actual[warehouse]), outside)
	}
	verdict := "The numbers agree, to the cent"
	if !c.Agree {
		verdict = "THE NUMBERS DO NOT AGREE"
	}
	v.printf("\n%s: %d messages were handed to the consumers, and %d copies changed nothing%s.\n\n", verdict, result.Deliveries,
		result.DuplicatesDropped, result.interrupted())
}

// interrupted says, for whoever subtracts, what the kills have cut short.
func (r *Result) interrupted() string {
	rest := r.Deliveries - r.DuplicatesDropped - r.Delivered["default"] - r.Delivered["partner"]
	if rest <= 0 {
		return ""
	}
	return fmt.Sprintf(";\n%d were cut short by a kill or an outage, and came again", rest)
}

// sideBySide prints two JSON values next to each other.
func (v *view) sideBySide(leftTitle string, left json.RawMessage, rightTitle string, right json.RawMessage) {
	leftLines, rightLines := pretty(left), pretty(right)
	const width = 66
	v.printf("  %-*s %s\n", width, leftTitle, rightTitle)
	for i := range max(len(leftLines), len(rightLines)) {
		v.printf("  %-*s %s\n", width, clip(at(leftLines, i), width-1), clip(at(rightLines, i), width-1))
	}
}

func pretty(value json.RawMessage) []string {
	var out bytes.Buffer
	if json.Indent(&out, value, "", "  ") != nil {
		return []string{string(value)}
	}
	return strings.Split(out.String(), "\n")
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return ""
}

func clip(line string, width int) string {
	if runes := []rune(line); len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	return line
}
