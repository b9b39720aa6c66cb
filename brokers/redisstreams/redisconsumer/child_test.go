package redisconsumer_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/redisstreams/redisconsumer"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// childVariable makes this test program a consumer: the value says what its handler is like.
const childVariable = "FANOUT_TEST_CHILD"

// Arguments of a child.
const (
	urlVariable    = "FANOUT_TEST_CHILD_URL"
	streamVariable = "FANOUT_TEST_CHILD_STREAM"
	claimVariable  = "FANOUT_TEST_CHILD_CLAIM"
)

// doneSuffix names the hash where children note how often they have handled what, begunSuffix that
// of what they have begun.
const (
	doneSuffix  = ":done"
	begunSuffix = ":begun"
	poison      = 25
)

// child is the consumer. It ends when it is told to, or dies of its handler.
func child() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := consume(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func consume(ctx context.Context) error {
	settings, err := redis.ParseURL(os.Getenv(urlVariable))
	if err != nil {
		return err
	}
	client := redis.NewClient(settings)
	defer client.Close()
	claim, err := time.ParseDuration(os.Getenv(claimVariable))
	if err != nil {
		return err
	}
	stream, kind := os.Getenv(streamVariable), os.Getenv(childVariable)
	note := func(suffix string, n int) error {
		return client.HIncrBy(context.Background(), stream+suffix, strconv.Itoa(n), 1).Err()
	}
	handler := inbox.HandlerFunc(func(_ context.Context, m *inbox.Message) (inbox.Outcome, error) {
		n := number(m)
		if err := note(begunSuffix, n); err != nil {
			return "", err
		}
		if kind == "poison" && n == poison {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		return inbox.Handled, note(doneSuffix, n)
	})
	var decoder inbox.Decoder
	if kind == "poison in the decoder" {
		decoder = func(raw *inbox.RawMessage) (*envelope.CloudEvent, error) {
			if bytes.Contains(raw.Payload, fmt.Appendf(nil, `"N":%d}`, poison)) {
				_ = note(begunSuffix, poison)
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
			return nil, nil //nolint:nilnil // it is left to the consumer
		}
	}
	c, err := redisconsumer.NewConsumer(client, group, []string{stream}, handler, redisconsumer.Config{
		ConsumerConfig: inbox.ConsumerConfig{
			MaxOutstandingMessages: 100, Retry: inbox.Retry{MaxAttempts: 5, BaseDelay: time.Millisecond}, ShutdownTimeout: 100 * time.Millisecond,
			Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Decoder: decoder,
		},
		ClaimAfter: claim, Block: 50 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// process is a child, seen by the test.
type process struct {
	cmd  *exec.Cmd
	log  bytes.Buffer
	dead chan struct{}
}

// startChild starts this program anew as a child. Whatever becomes of the test, the child ends with
// it.
func startChild(t *testing.T, kind, url, stream string, claim time.Duration) *process {
	t.Helper()
	p := &process{cmd: exec.Command(os.Args[0]), dead: make(chan struct{})} //nolint:noctx // it is stopped by a signal
	p.cmd.Env = append(os.Environ(), childVariable+"="+kind, urlVariable+"="+url, streamVariable+"="+stream, claimVariable+"="+claim.String())
	p.cmd.Stderr = &p.log
	require.NoError(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait()
		close(p.dead)
	}()
	t.Cleanup(p.kill)
	return p
}

// kill ends a child as a crash does.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.dead
}

func (s *site) noted(t *testing.T, suffix string) map[string]string {
	t.Helper()
	noted, err := s.HGetAll(context.Background(), s.stream+suffix).Result()
	require.NoError(t, err)
	return noted
}

func realSite(t *testing.T) (s *site, url string) {
	t.Helper()
	return newSite(t), testenv.Redis(t)
}

// A message that kills its process, in its handler or in its decoder, ends among the dead letters; its
// neighbours are all handled.
func TestPoisonThatKills(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"poison", "poison in the decoder"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			testPoison(t, kind)
		})
	}
}

func testPoison(t *testing.T, kind string) {
	t.Helper()
	s, url := realSite(t)
	for n := range 51 {
		s.add(t, strconv.Itoa(n), n)
	}
	deaths := 0
	for len(s.dead(t)) == 0 {
		p := startChild(t, kind, url, s.stream, 300*time.Millisecond)
		soon(t, "it dies, or abandons the message", func() bool {
			select {
			case <-p.dead:
				return true
			default:
				return len(s.dead(t)) > 0
			}
		})
		select {
		case <-p.dead:
			deaths++
			require.LessOrEqual(t, deaths, 5, "MaxAttempts")
		default:
			soon(t, "everything else is done", func() bool { return len(s.noted(t, doneSuffix)) == 50 && s.pending(t) == 0 })
		}
	}
	assert.Equal(t, 5, deaths)
	letters := s.dead(t)
	require.Len(t, letters, 1)
	assert.Contains(t, letters[0].Values["data"], fmt.Sprintf(`"N":%d`, poison))
	assert.NotContains(t, s.noted(t, doneSuffix), strconv.Itoa(poison))
	assert.Equal(t, "5", s.noted(t, begunSuffix)[strconv.Itoa(poison)])
}
