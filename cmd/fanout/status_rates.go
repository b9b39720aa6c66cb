package main

import (
	"context"
	"time"

	"github.com/gorm-fanout/fanout/monitor"
	"github.com/gorm-fanout/fanout/outbox"
)

// maxRated is how many rows are looked at for a rate.
const maxRated = 2 * monitor.MaxPage

// rates are what two looks tell.
type rates struct {
	// Published rows in a second; Atleast is true when there were too many to be looked at.
	Published float64
	Atleast   bool
	// Retry is the share of failures in what was tried, 0 to 1: failed rows that came to be beside those that were published. Known is false
	// where nothing was tried, or where failed rows were too many to count.
	Retry float64
	Known bool
}

// measure compares the look with the one before.
func (l *look) measure(ctx context.Context, status map[string]monitor.DatabaseStatus, now time.Time) {
	before, elapsed := l.before, now.Sub(l.at).Seconds()
	l.before, l.at, l.rates = map[spot]monitor.BrokerStatus{}, now, map[spot]rates{}
	for database, s := range status {
		for i := range s.Brokers {
			this := spot{database, s.Brokers[i].Broker}
			l.before[this] = s.Brokers[i]
			if last, ok := before[this]; ok && elapsed > 0 {
				if measured, ok := l.compare(ctx, database, &last, &s.Brokers[i], elapsed); ok {
					l.rates[this] = measured
				}
			}
		}
	}
}

// compare counts what was published between two looks by the times in the rows: the counts of published rows have a cap, and a purge makes
// them smaller.
func (l *look) compare(ctx context.Context, database string, last, now *monitor.BrokerStatus, elapsed float64) (r rates, ok bool) {
	published, more := 0, false
	if now.LastPublished.After(last.LastPublished) {
		var err error
		if published, more, err = l.publishedSince(ctx, database, now.Broker, last.LastPublished); err != nil {
			return rates{}, false // the next look tells what is wrong
		}
	}
	r.Published, r.Atleast = float64(published)/elapsed, more
	before, after := last.Counts[outbox.StatusFailed], now.Counts[outbox.StatusFailed]
	failed := max(0, after.N-before.N)
	if !before.More && !after.More && !more && failed+int64(published) > 0 {
		r.Retry, r.Known = float64(failed)/float64(failed+int64(published)), true
	}
	return r, true
}

func (l *look) publishedSince(ctx context.Context, database, broker string, since time.Time) (n int, more bool, err error) {
	query := monitor.MessagesQuery{Broker: broker, Statuses: []outbox.Status{outbox.StatusPublished}, Limit: monitor.MaxPage}
	for n < maxRated {
		page, err := l.session.Messages(ctx, database, query)
		if err != nil {
			return 0, false, err
		}
		for i := range page.Records {
			if !page.Records[i].PublishedAt.After(since) {
				return n, false, nil
			}
			n++
		}
		if page.Next == "" {
			return n, false, nil
		}
		query.Cursor = page.Next
	}
	return n, true, nil
}
