package main

import (
	"context"
	"time"

	"github.com/gorm-fanout/fanout/monitor"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// maxRated bounds the rows that are read for a rate.
const maxRated = 2 * monitor.MaxPage

// rates are what happened between two samples.
type rates struct {
	// Published rows per second; AtLeast is true when there were too many to read.
	Published float64
	AtLeast   bool
	// Retry is the share of failures, 0 to 1: new failed rows among those and the published ones.
	// Known is false where nothing was tried, or where there were too many failed rows to count.
	Retry float64
	Known bool
}

// measure compares a sample with the previous one.
func (s *sampler) measure(ctx context.Context, status map[string]monitor.DatabaseStatus, now time.Time) {
	before, elapsed := s.before, now.Sub(s.at).Seconds()
	s.before, s.at, s.rates = map[spot]monitor.BrokerStatus{}, now, map[spot]rates{}
	for database, of := range status {
		for i := range of.Brokers {
			this := spot{database, of.Brokers[i].Broker}
			s.before[this] = of.Brokers[i]
			if last, ok := before[this]; ok && elapsed > 0 {
				if measured, ok := s.compare(ctx, database, &last, &of.Brokers[i], elapsed); ok {
					s.rates[this] = measured
				}
			}
		}
	}
}

// compare counts the rows published between two samples by their times: counts of published rows
// are capped, and a purge reduces them.
func (s *sampler) compare(ctx context.Context, database string, last, now *monitor.BrokerStatus, elapsed float64) (r rates, ok bool) {
	if now.NotKept {
		return rates{}, false // no row tells
	}
	published, more := 0, false
	if now.LastPublished.After(last.LastPublished) {
		var err error
		if published, more, err = s.publishedSince(ctx, database, now.Broker, last.LastPublished); err != nil {
			return rates{}, false // the next sample reports the error
		}
	}
	r.Published, r.AtLeast = float64(published)/elapsed, more
	before, after := last.Counts[outbox.StatusFailed], now.Counts[outbox.StatusFailed]
	failed := max(0, after.N-before.N)
	if !before.More && !after.More && !more && failed+int64(published) > 0 {
		r.Retry, r.Known = float64(failed)/float64(failed+int64(published)), true
	}
	return r, true
}

func (s *sampler) publishedSince(ctx context.Context, database, broker string, since time.Time) (n int, more bool, err error) {
	query := monitor.MessagesQuery{Filter: admin.Filter{Broker: broker, Statuses: []outbox.Status{outbox.StatusPublished}}, Limit: monitor.MaxPage}
	for n < maxRated {
		page, err := s.session.Messages(ctx, database, query)
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
