//go:build unix

package chaos

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gorm-fanout/fanout/integration/chaos/scenario"
)

// watchSessions samples the database's sessions and the memory of the processes once a second. The
// function that it returns stops the sampling and returns the peaks.
func (s *fixture) watchSessions(ctx context.Context) (stop func() map[string]int) {
	ctx, cancel := context.WithCancel(ctx)
	peaks, done := map[string]int{}, make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			s.countSessions(ctx, peaks)
			for _, p := range s.processes {
				p.weigh()
			}
			pauseFor(ctx, time.Second)
		}
	}()
	return func() map[string]int {
		cancel()
		<-done
		return peaks
	}
}

// countSessions updates the peaks by process. It does nothing while the database is down.
func (s *fixture) countSessions(ctx context.Context, peaks map[string]int) {
	_ = s.ask(ctx, func(ctx context.Context, db *sql.DB) error {
		var (
			name string
			n    int
		)
		return each(ctx, db, s.database.peaks, []any{&name, &n}, func() error {
			peaks[name] = max(peaks[name], n)
			return nil
		})
	})
}

// openRows counts the rows that are not final.
func (s *fixture) openRows(ctx context.Context) (n int, err error) {
	err = s.ask(ctx, func(ctx context.Context, db *sql.DB) error {
		return db.QueryRowContext(ctx, "SELECT count(*) FROM outbox_messages WHERE finished_at IS NULL").Scan(&n)
	})
	return n, err
}

// sessionsLeft waits for a while until no client is connected to the database, and returns how many
// still are.
func (s *fixture) sessionsLeft(ctx context.Context) (n int, err error) {
	bound, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		err = s.ask(ctx, func(ctx context.Context, db *sql.DB) error {
			return db.QueryRowContext(ctx, s.database.left).Scan(&n)
		})
		if err == nil && n == 0 || bound.Err() != nil {
			return n, err
		}
		pauseFor(bound, 100*time.Millisecond)
	}
}

// unseen reports whether consumers have messages left to read.
func (s *fixture) unseen(ctx context.Context) (bool, error) {
	seen := map[string]map[string]struct{}{} // by consumer and stream: entries
	for _, consumer := range s.cluster.consumers {
		err := scenario.ReadLedger(s.processes[consumer].path("ledger"), func(line scenario.Line) {
			of := consumer + " " + line.Stream
			if consumer == "puller" {
				of = consumer // the fake's numbers are of all topics
			}
			if seen[of] == nil {
				seen[of] = map[string]struct{}{}
			}
			if line.Entry != "" {
				seen[of][line.Entry] = struct{}{}
			}
		})
		if err != nil {
			return false, err
		}
	}
	options, err := redis.ParseURL(s.servers.redisURL)
	if err != nil {
		return false, err
	}
	client := redis.NewClient(options)
	defer client.Close()
	for _, stream := range scenario.Streams() {
		for _, name := range []string{stream, scenario.PartnerPrefix + stream} {
			length, err := client.XLen(ctx, name).Result()
			if err != nil || int(length) > len(seen["reader "+name]) {
				return true, err
			}
		}
	}
	held, err := s.countFake(ctx)
	return held > len(seen["puller"]), err
}

// countFake returns the number of messages in the fake of Pub/Sub.
func (s *fixture) countFake(ctx context.Context) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.servers.messages+"/count", http.NoBody)
	if err != nil {
		return 0, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("chaos: the fake of Pub/Sub: %w", err)
	}
	return n, nil
}
