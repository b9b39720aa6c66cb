// Package browser drives the dashboard in a real Chromium, against a relay that delivers.
package browser

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/monitor"
	"github.com/gorm-fanout/fanout/outbox"
)

// chromiumVariable names the browser; without it one of the usual names is looked for in PATH.
const chromiumVariable = "FANOUT_TEST_CHROMIUM"

// chromium finds a browser, or skips the test aloud.
func chromium(t *testing.T) string {
	t.Helper()
	if path := os.Getenv(chromiumVariable); path != "" {
		return path
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skipf("SKIPPED ALOUD: no Chromium in PATH: install one, or name it in %s", chromiumVariable)
	return ""
}

// picky refuses everything until it is cured.
type picky struct {
	*memory.Broker

	cured atomic.Bool
}

func (p *picky) Publish(ctx context.Context, messages []brokers.Message) []brokers.Result {
	if p.cured.Load() {
		return p.Broker.Publish(ctx, messages)
	}
	results := make([]brokers.Result, len(messages))
	for i := range messages {
		results[i].Err = brokers.Permanent(fmt.Errorf("topic %q does not exist", messages[i].Destination))
	}
	return results
}

// place is a relay with its dashboard, and one page of a browser that shows it.
type place struct {
	*testing.T

	url     string
	db      *sql.DB
	partner *picky
	page    context.Context

	mu       sync.Mutex
	recorded map[uuid.UUID]bool // what the consumer billing has recorded
	problems []string           // what the browser complained about
	origins  map[string]bool
}

const rows = 40

// progress is what the inbox of the consumer billing says.
func (p *place) progress(_ context.Context, messages []uuid.UUID, _ []string) (map[uuid.UUID][]monitor.ConsumerProgress, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := map[uuid.UUID][]monitor.ConsumerProgress{}
	for _, id := range messages {
		if p.recorded[id] {
			found[id] = []monitor.ConsumerProgress{{Source: "ordering::order", Status: "handled"}}
		}
	}
	return found, nil
}

func newPlace(t *testing.T) *place {
	t.Helper()
	t.Parallel()
	binary := chromium(t)
	p := &place{T: t, partner: &picky{Broker: memory.New()}, origins: map[string]bool{}}
	path := filepath.Join(t.TempDir(), "shop.db")
	cfg, err := config.Parse([]byte(`
databases: {default: {driver: sqlite}}
outbox: {external_brokers: [partner]}
brokers: {default: {type: memory}, partner: {type: memory}}
`), "fanout.yaml")
	require.NoError(t, err)
	cfg.Databases["default"] = config.Database{Driver: outbox.SQLite, DSN: config.Secret(path)}
	store, err := fanout.OpenStore(t.Context(), cfg, "default")
	require.NoError(t, err)
	_, err = store.Migrate(t.Context())
	require.NoError(t, errors.Join(err, store.Close()))
	relay, err := fanout.Open(t.Context(), cfg, fanout.WithBroker("partner", p.partner), fanout.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	handler, err := relay.Monitor(fanout.MonitorOptions{
		Authorise: func(*http.Request) (monitor.Identity, error) {
			return monitor.Identity{Name: "ada", Role: monitor.RoleOperator}, nil
		},
		Consumers: map[string]monitor.Consumer{"billing": {Broker: "default", Progress: p.progress}},
	})
	require.NoError(t, err)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	p.url = server.URL
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- relay.Run(ctx) }()
	t.Cleanup(func() { stop(); require.NoError(t, <-done) })
	p.db, err = sql.Open("sqlite", path+"?_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.db.Close() })
	for range rows {
		p.write()
	}
	p.eventually("rows WHERE target_broker = 'partner' AND status = 'abandoned'", rows)
	p.browse(binary)
	return p
}

// write adds one event: a row for each broker, with forms that differ.
func (p *place) write() (id string) {
	p.Helper()
	id = uuid.NewString()
	for broker, payload := range map[string]string{
		"default": `{"id": %q, "type": "Ordering.OrderPlaced.v1", "data": {"order": "42", "customer": "ada", "internal_note": "checked by hand"}}`,
		"partner": `{"id": %q, "type": "Ordering.OrderPlaced.v1", "data": {"order": "42"}}`,
	} {
		_, err := p.db.ExecContext(p.Context(), `INSERT INTO outbox_messages (message_id, target_broker, stream, type, ordering_key, payload)
			VALUES (?, ?, 'ordering::order', 'Ordering.OrderPlaced.v1', 'ordering::order-42', ?)`, id, broker, []byte(fmt.Sprintf(payload, id)))
		require.NoError(p, err)
	}
	return id
}

func (p *place) eventually(what string, n int) {
	p.Helper()
	require.Eventually(p, func() bool {
		var found int
		err := p.db.QueryRowContext(p.Context(), "SELECT count(*) FROM outbox_messages AS "+what).Scan(&found)
		return err == nil && found == n
	}, time.Minute, 20*time.Millisecond, "%d %s", n, what)
}

// browse opens a page, and listens to what the browser says about it.
func (p *place) browse(binary string) {
	p.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(binary), chromedp.Flag("disable-gpu", true))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // as root it has none
	}
	allocator, free := chromedp.NewExecAllocator(p.Context(), options...)
	p.Cleanup(free)
	page, shut := chromedp.NewContext(allocator, chromedp.WithErrorf(func(string, ...any) {})) // of events that are newer than it
	p.Cleanup(shut)
	page, expire := context.WithTimeout(page, 2*time.Minute)
	p.Cleanup(expire)
	p.page = page
	chromedp.ListenTarget(page, func(event any) {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			p.problems = append(p.problems, "exception: "+e.ExceptionDetails.Error())
		case *cdplog.EventEntryAdded:
			if e.Entry.Level == cdplog.LevelError {
				p.problems = append(p.problems, "error: "+e.Entry.Text+" "+e.Entry.URL)
			}
		case *runtime.EventConsoleAPICalled:
			if e.Type == runtime.APITypeError {
				p.problems = append(p.problems, fmt.Sprint("console: ", e.Args))
			}
		case *network.EventRequestWillBeSent:
			if !strings.HasPrefix(e.Request.URL, "data:") && e.Request.URL != "about:blank" {
				p.origins[strings.Join(strings.SplitN(e.Request.URL, "/", 4)[:3], "/")] = true
			}
		}
	})
	p.do(network.Enable(), cdplog.Enable(), runtime.Enable(), chromedp.EmulateViewport(1280, 900))
	p.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		assert.Empty(p, p.problems, "exceptions, errors and violations of the content security policy")
		assert.Equal(p, map[string]bool{p.url: true}, p.origins, "nothing is loaded from elsewhere")
	})
}

func (p *place) do(actions ...chromedp.Action) {
	p.Helper()
	require.NoError(p, chromedp.Run(p.page, actions...))
}

// visit shows a page and waits for its heading.
func (p *place) visit(hash string) {
	p.Helper()
	p.do(chromedp.Navigate(p.url+"/"+hash), chromedp.WaitVisible("main h1"))
}

// click clicks the first element of a kind with this text.
func (p *place) click(kind, text string) {
	p.Helper()
	p.do(chromedp.Click(fmt.Sprintf(`//%s[normalize-space(.)=%q]`, kind, text), chromedp.BySearch, chromedp.NodeVisible, chromedp.NodeEnabled))
}

// says waits until the page says something.
func (p *place) says(text string) {
	p.Helper()
	p.do(chromedp.Poll(fmt.Sprintf("document.body.innerText.includes(%q)", text), nil, chromedp.WithPollingTimeout(30*time.Second)))
}

// ask evaluates an expression in the page.
func ask[T any](p *place, expression string) (answer T) {
	p.Helper()
	p.do(chromedp.Evaluate(expression, &answer))
	return answer
}

// screenshot keeps a picture where FANOUT_SCREENSHOTS names a directory.
func (p *place) screenshot(name string) {
	p.Helper()
	dir := os.Getenv("FANOUT_SCREENSHOTS")
	if dir == "" {
		return
	}
	var picture []byte
	p.do(chromedp.CaptureScreenshot(&picture))
	require.NoError(p, os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o600))
}

// scheme is what the system prefers: light or dark, and nothing that moves, so that no colour is
// met on its way.
func scheme(name string) chromedp.Action {
	return emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"},
	})
}
