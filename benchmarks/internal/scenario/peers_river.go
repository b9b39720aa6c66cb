package scenario

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverPeer drains by River, a queue of jobs in PostgreSQL: a message is a job, whose worker adds
// it to the stream. River keeps no order of the messages of a key.
//
// As it is by default: 100 workers, of the examples in its documentation, and a fetch each 100 ms
// at most ("throughput is limited by this value"). Tuned: 4,000 workers, since a fetch takes as
// many jobs as workers are idle, and fetches as soon as there are any. Its completer works in
// batches in both.
type riverPeer struct{ tuned bool }

// riverJob is the message. Its payload is text, which JSON takes as it is; bytes would be a third
// longer.
type riverJob struct {
	Stream  string `json:"stream"`
	ID      string `json:"id"`
	Type    string `json:"type"`
	Headers string `json:"headers"`
	Payload string `json:"payload"`
}

// Kind implements river.JobArgs.
func (riverJob) Kind() string { return "publish" }

// riverWorker publishes a job.
type riverWorker struct {
	river.WorkerDefaults[riverJob]

	client *redis.Client
	want   int64
	worked atomic.Int64
	sent   chan struct{} // closed with the last one that is wanted
}

// Work implements river.Worker.
func (w *riverWorker) Work(ctx context.Context, job *river.Job[riverJob]) error {
	m := &job.Args
	if err := w.client.Do(ctx, "xadd", m.Stream, "*", "data", m.Payload, "id", m.ID, "type", m.Type, "headers", m.Headers).Err(); err != nil {
		return err
	}
	if w.worked.Add(1) == w.want {
		close(w.sent)
	}
	return nil
}

const (
	riverWorkers      = 100
	riverTunedWorkers = 4000
	riverInsert       = 2000 // jobs that are written at once
	// riverTunedPoll is how often it looks for jobs of which it was not notified.
	riverTunedPoll = 10 * time.Millisecond
	// riverStop bounds how long the end may take.
	riverStop = 30 * time.Second
)

// migrateRiver makes its tables where the pool's search path leads.
func migrateRiver(ctx context.Context, pool *pgxpool.Pool) error {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

// client opens River for so many jobs; 0 is for any number.
func (p riverPeer) client(pool *pgxpool.Pool, worker *riverWorker) (*river.Client[pgx.Tx], error) {
	workers := river.NewWorkers()
	if err := river.AddWorkerSafely[riverJob](workers, worker); err != nil {
		return nil, err
	}
	config := &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverWorkers}}, Workers: workers, Logger: slog.New(slog.DiscardHandler),
	}
	if p.tuned {
		config.Queues[river.QueueDefault] = river.QueueConfig{MaxWorkers: riverTunedWorkers}
		config.FetchCooldown, config.FetchPollInterval = river.FetchCooldownMin, riverTunedPoll
	}
	return river.NewClient(riverpgxv5.New(pool), config)
}

func (riverPeer) fill(ctx context.Context, s *setup) error {
	if err := migrateRiver(ctx, s.pool); err != nil {
		return err
	}
	client, err := river.NewClient(riverpgxv5.New(s.pool), &river.Config{Logger: slog.New(slog.DiscardHandler)}) // that only inserts
	if err != nil {
		return err
	}
	payload := strings.Repeat("x", s.Payload)
	for first := int64(0); first < s.rows; first += riverInsert {
		jobs := make([]river.InsertManyParams, min(riverInsert, s.rows-first))
		for i := range jobs {
			jobs[i].Args = riverJob{Stream: s.stream, ID: messageID(first + int64(i)), Type: peerType, Headers: peerHeaders, Payload: payload}
		}
		if _, err := client.InsertManyFast(ctx, jobs); err != nil {
			return err
		}
	}
	return nil
}

func (p riverPeer) drain(ctx context.Context, s *setup) (err error) {
	worker := &riverWorker{client: s.streams.Client, want: s.rows, sent: make(chan struct{})}
	client, err := p.client(s.pool, worker)
	if err != nil {
		return err
	}
	if err := client.Start(ctx); err != nil {
		return err
	}
	s.stop = func() error {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), riverStop)
		defer cancel()
		return client.Stop(stopping)
	}
	return s.complete(ctx, worker.sent, "SELECT EXISTS (SELECT FROM river_job WHERE state IN ('available', 'running', 'retryable', 'scheduled'))")
}

func (riverPeer) completed(ctx context.Context, s *setup) (n int64, err error) {
	err = s.pool.QueryRow(ctx, "SELECT count(*) FROM river_job WHERE state = 'completed'").Scan(&n)
	return n, err
}

func (riverPeer) field() string { return "id" }
