//go:build unix

package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gorm-fanout/fanout/integration/chaos/scenario"
	"github.com/gorm-fanout/fanout/integration/chaos/worker"
	"github.com/gorm-fanout/fanout/internal/testservers/child"
)

// pubSubServer is the fake of Pub/Sub, in a process of its own. It keeps everything in memory, so
// nothing ends it.
var pubSubServer = &serverKind{
	name:    "pubsub",
	start:   startFake,
	address: func(url string) string { return url },
	through: func(_, address string) string { return address },
}

func startFake(ctx context.Context, s *fixture) (*server, error) {
	log, err := os.Create(filepath.Join(s.dir, "fake.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.CommandContext(context.WithoutCancel(ctx), s.programs.plain)
	cmd.Env = append(os.Environ(), worker.RoleVariable+"=serve-pubsub", worker.LedgerVariable+"="+filepath.Join(s.dir, "fake.ledger"))
	cmd.Stderr = log
	said, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if _, err := cmd.StdinPipe(); err != nil {
		return nil, err
	}
	fake, err := child.Start(cmd)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, func() error {
		return fake.Stop(child.Step{Signal: syscall.SIGKILL, Patience: 10 * time.Second})
	})
	line, err := bufio.NewReader(said).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("chaos: the fake of Pub/Sub did not start: %w", err)
	}
	at := &server{nodes: []*node{{}}}
	if _, err := fmt.Sscan(line, &at.url, &s.servers.messages); err != nil {
		return nil, fmt.Errorf("chaos: the fake of Pub/Sub said %q: %w", line, err)
	}
	return at, nil
}

// readPubSub reads all that the fake holds.
func readPubSub(ctx context.Context, s *servers, hold holder) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.messages, http.NoBody)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	lines := json.NewDecoder(bufio.NewReader(answer.Body))
	for lines.More() {
		var m scenario.Message
		if err := lines.Decode(&m); err != nil {
			return fmt.Errorf("chaos: read the messages of Pub/Sub: %w", err)
		}
		if err := hold(m.Attributes, m.Data, m.At); err != nil {
			return err
		}
	}
	return nil
}
