package monitor

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

const (
	// sampleEvery is how far samples are apart, and historySamples how many are kept: ten minutes.
	sampleEvery    = 2 * time.Second
	historySamples = 300
	// retryWindow is what the retry rate looks back on.
	retryWindow = 5 * time.Minute
	// rateWindow is what the speed of delivery looks back on.
	rateWindow = 10 * time.Second
	// The databases are asked at each sample while an operator looks, and seldom otherwise.
	watchedFor = time.Minute
	seldom     = 10 * time.Second
	// maxSeries bounds the memory: 200 of them have about 3 MB.
	maxSeries = 200
)

// series is what one broker of one database does over time.
type series struct{ database, broker string }

// sample is one broker at one moment. A nil means unknown.
type sample struct {
	at time.Time
	// Since the sample before.
	published, failed *float64 // per second
	lag, pending      *float64
	// Counters of the engine in this process; nil where none runs.
	counters *counters
}

type counters struct{ published, retried, abandoned int64 }

// history keeps the last samples of each series.
type history struct {
	mu      sync.Mutex
	samples map[series][]sample
	lookers time.Time // when a page last asked
	asked   time.Time // when the databases were asked last
	speeds  map[series]float64
	status  map[string]DatabaseStatus
}

func newHistory() *history {
	return &history{samples: map[series][]sample{}, speeds: map[series]float64{}}
}

// watched notes that a page asks.
func (h *history) watched(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lookers = now
}

// due tells whether the databases are to be asked.
func (h *history) due(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.Sub(h.lookers) > watchedFor && now.Sub(h.asked) < seldom-sampleEvery/2 {
		return false
	}
	h.asked = now
	return true
}

// sample takes one sample of everything.
func (h *Handler) sample(ctx context.Context) {
	if h.history.due(h.now()) {
		status := h.status(ctx)
		var speeds map[series]float64
		if h.cfg.Stats == nil {
			speeds = h.speeds(ctx, status)
		}
		h.history.learn(status, speeds)
	}
	h.history.add(h.now(), h.stats())
}

// speedRows is how many of the newest published rows tell how fast a broker is.
const speedRows = 200

// speeds asks the databases how fast rows were published of late: by those of the last ten seconds,
// or where there are many by the newest 200.
func (h *Handler) speeds(ctx context.Context, status map[string]DatabaseStatus) map[series]float64 {
	speeds := map[series]float64{}
	for database, one := range status {
		for i := range one.Brokers {
			broker := one.Brokers[i].Broker
			if one.Brokers[i].NotKept {
				continue // no row tells of it
			}
			if one.Brokers[i].LastPublished.IsZero() || h.now().Sub(one.Brokers[i].LastPublished) > 2*rateWindow {
				speeds[series{database, broker}] = 0
				continue
			}
			var newest, oldest time.Time
			n := 0
			_, err := h.console.walk(ctx, database, admin.ListRequest{Broker: broker, Status: outbox.StatusPublished}, speedRows, func(r *admin.Record) {
				if n == 0 {
					newest = r.FinishedAt
				}
				if newest.Sub(r.FinishedAt) <= rateWindow {
					n++
					oldest = r.FinishedAt
				}
			})
			if err != nil {
				continue
			}
			span := rateWindow
			if n == speedRows { // there may be more within the window
				span = max(newest.Sub(oldest), time.Millisecond)
			}
			speeds[series{database, broker}] = float64(n) / span.Seconds()
		}
	}
	return speeds
}

// learn notes what the databases said.
func (h *history) learn(status map[string]DatabaseStatus, speeds map[series]float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status, h.speeds = status, speeds
}

// add makes a sample of the counters and of what the databases said last.
func (h *history) add(now time.Time, stats map[series]*relay.Stats) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fresh, strangers := map[series]sample{}, map[series]bool{}
	for database, one := range h.status {
		for i := range one.Brokers {
			b := &one.Brokers[i]
			key := series{database, b.Broker}
			s := sample{at: now, lag: known(b.Lag.Seconds()), pending: known(float64(b.Counts[outbox.StatusPending].N))}
			if speed, ok := h.speeds[key]; ok {
				s.published = known(speed)
			}
			fresh[key], strangers[key] = s, b.Unknown
		}
	}
	for key, of := range stats {
		s := fresh[key]
		s.at = now
		s.counters = &counters{published: of.Published, retried: of.Retried, abandoned: of.Abandoned}
		s.published, s.failed = s.counters.since(h.newest(key), now)
		fresh[key] = s
	}
	for _, key := range sortedSeries(fresh) {
		_, there := h.samples[key]
		if !there && !strangers[key] && len(h.samples) >= maxSeries {
			h.giveUp(strangers)
		}
		if there || len(h.samples) < maxSeries {
			h.samples[key] = append(h.samples[key], fresh[key])
		}
	}
	for key, list := range h.samples {
		from := slices.IndexFunc(list, func(s sample) bool { return now.Sub(s.at) < historySamples*sampleEvery })
		switch {
		case from < 0:
			delete(h.samples, key)
		case from > 0:
			h.samples[key] = slices.Delete(list, 0, from)
		}
	}
}

// giveUp makes room for a broker of the configuration: one that it does not have goes, if there is any.
func (h *history) giveUp(strangers map[series]bool) {
	for key := range h.samples {
		if strangers[key] {
			delete(h.samples, key)
			return
		}
	}
}

// newest is the last sample of a series; nil where there is none.
func (h *history) newest(key series) *sample {
	list := h.samples[key]
	if len(list) == 0 {
		return nil
	}
	return &list[len(list)-1]
}

// since are the speeds since an earlier sample; nil where there is none, or the engine was another
// one.
func (c *counters) since(before *sample, now time.Time) (published, failed *float64) {
	if before == nil || before.counters == nil || !now.After(before.at) {
		return nil, nil
	}
	seconds := now.Sub(before.at).Seconds()
	sent := float64(c.published-before.counters.published) / seconds
	lost := float64(c.retried+c.abandoned-before.counters.retried-before.counters.abandoned) / seconds
	if sent < 0 || lost < 0 {
		return nil, nil
	}
	return &sent, &lost
}

// rates are rows published per second, over the last ten seconds, and attempts that were retried as
// a part of all, over the last five minutes. Both are nil where that is unknown, and the second
// also where there was no attempt.
func (h *history) rates(key series) (published, retried *float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := h.newest(key)
	if last == nil {
		return nil, nil
	}
	if last.counters == nil {
		return last.published, nil
	}
	list := h.samples[key]
	first := func(window time.Duration) *sample { // the earliest of a window
		i := slices.IndexFunc(list, func(s sample) bool { return s.counters != nil && last.at.Sub(s.at) <= window })
		return &list[i] // the last one is in each window
	}
	published, _ = last.counters.since(first(rateWindow), last.at)
	from := first(retryWindow).counters
	sent, again := last.counters.published-from.published, last.counters.retried-from.retried
	attempts := sent + again + last.counters.abandoned - from.abandoned
	if attempts > 0 && sent >= 0 && again >= 0 {
		retried = known(float64(again) / float64(attempts))
	}
	return published, retried
}

// historyAnswer is the answer of GET /api/outbox/history. Lists have one entry for each step, the
// newest last; null = no sample.
type historyAnswer struct {
	StepSeconds float64        `json:"step_seconds"`
	Now         time.Time      `json:"now"`
	Series      []seriesAnswer `json:"series"`
}

type seriesAnswer struct {
	Database           string     `json:"database"`
	Broker             string     `json:"broker"`
	PublishedPerSecond []*float64 `json:"published_per_second"`
	FailedPerSecond    []*float64 `json:"failed_per_second"`
	LagSeconds         []*float64 `json:"lag_seconds"`
	Pending            []*float64 `json:"pending"`
}

func (h *Handler) getHistory(w http.ResponseWriter, _ *request) error {
	now := h.now()
	h.history.watched(now)
	return answer(w, historyAnswer{StepSeconds: sampleEvery.Seconds(), Now: now.UTC(), Series: h.history.answer(now)})
}

func (h *history) answer(now time.Time) []seriesAnswer {
	h.mu.Lock()
	defer h.mu.Unlock()
	var latest time.Time
	for _, samples := range h.samples {
		if at := samples[len(samples)-1].at; at.After(latest) {
			latest = at
		}
	}
	missed := int(max(0, now.Sub(latest)) / sampleEvery)
	list := make([]seriesAnswer, 0, len(h.samples))
	for _, key := range sortedSeries(h.samples) {
		steps := func() []*float64 { return make([]*float64, historySamples) }
		one := seriesAnswer{
			Database: key.database, Broker: key.broker, PublishedPerSecond: steps(), FailedPerSecond: steps(), LagSeconds: steps(), Pending: steps(),
		}
		for _, s := range h.samples[key] {
			i := historySamples - 1 - missed - int(latest.Sub(s.at).Round(sampleEvery)/sampleEvery) // a ticker is not exact
			if i < 0 || i >= historySamples {
				continue
			}
			one.PublishedPerSecond[i], one.FailedPerSecond[i], one.LagSeconds[i], one.Pending[i] = s.published, s.failed, s.lag, s.pending
		}
		list = append(list, one)
	}
	return list
}

func sortedSeries[T any](m map[series]T) []series {
	return slices.SortedFunc(maps.Keys(m), func(a, b series) int {
		return cmp.Or(cmp.Compare(a.database, b.database), cmp.Compare(a.broker, b.broker))
	})
}

func known(n float64) *float64 { return &n }
