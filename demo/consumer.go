package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"time"

	"github.com/gorm-fanout/fanout/inbox"
)

// consumerVariable makes this program the consumer's process. It holds a consumerConfig.
const consumerVariable = "FANOUT_DEMO_CONSUMER"

// consumerConfig is all that the consumer's process has to know.
type consumerConfig struct {
	Start    status `json:"start"`
	URL      string `json:"url"`      // has the messages
	Database string `json:"database"` // path of the consumer's own database
}

// process is a process of the consumer.
type process struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
	done   chan struct{} // closed when the process has ended
	err    error         // its failure, once done is closed
}

// startConsumer starts this program again as the consumer. The process is killed when ctx ends.
func (r *run) startConsumer(ctx context.Context) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program, to start it again as the consumer: %w", err)
	}
	encoded, err := json.Marshal(r.consumes)
	if err != nil {
		return err
	}
	p := &process{cmd: exec.CommandContext(ctx, program), done: make(chan struct{})} //nolint:gosec // this very program
	p.cmd.Env = append(os.Environ(), consumerVariable+"="+string(encoded))
	p.cmd.Stderr = &p.stderr
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start the consumer's process: %w", err)
	}
	r.consumer = p
	go func() {
		defer close(p.done)
		if err := p.cmd.Wait(); err != nil {
			p.err = fmt.Errorf("the consumer's process failed: %w\n%s", err, p.stderr.String())
		}
	}()
	return nil
}

// ended returns an error if the process has ended by itself.
func (p *process) ended() error {
	select {
	case <-p.done:
		return errors.Join(errors.New("the consumer's process has ended by itself"), p.err)
	default:
		return nil
	}
}

// kill ends the process at once, whatever it is doing.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// consumerMain runs the consumer if the environment says that this process is the consumer. Then ok
// is true, and the program has to exit with the code.
func consumerMain() (code int, ok bool) {
	text, ok := os.LookupEnv(consumerVariable)
	if !ok {
		return 0, false
	}
	signal.Ignore(os.Interrupt) // a terminal sends it to all processes; the parent decides
	var cfg consumerConfig
	err := json.Unmarshal([]byte(text), &cfg)
	if err == nil {
		err = consume(context.Background(), cfg)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	return 0, true
}

// consume keeps the projections of all brokers' messages until the parent stops it or is gone. It
// handles the messages of each broker in their order, and repeats one that fails.
func consume(ctx context.Context, cfg consumerConfig) error {
	db, err := openProjections(ctx, cfg.Database)
	if err != nil {
		return err
	}
	defer closeDB(db) //nolint:errcheck // the transactions have ended
	handlers := projectionHandlers(db)
	for now := cfg.Start; ; {
		messages, err := ask(cfg.URL, now)
		if errors.Is(err, errStop) {
			return handlers.Err()
		}
		if err != nil {
			return err // the parent is gone
		}
		for broker, payloads := range messages {
			for _, payload := range payloads {
				if !now.handle(ctx, handlers, broker, payload) {
					break
				}
			}
		}
		if len(messages) == 0 {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

var errStop = errors.New("the parent stops the consumer")

// ask gets the next payloads of each broker.
func ask(url string, now status) (messages map[string][]json.RawMessage, err error) {
	encoded, err := json.Marshal(now)
	if err != nil {
		return nil, err
	}
	response, err := http.Post(url, "application/json", bytes.NewReader(encoded)) //nolint:noctx,gosec // the parent is on this machine
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusGone {
		return nil, errStop
	}
	return messages, json.NewDecoder(response.Body).Decode(&messages)
}

// handle adds a message to the projection of its broker, once however often it arrives.
func (s *status) handle(ctx context.Context, handlers *inbox.Handlers, broker string, payload []byte) bool {
	message, err := inbox.Decode(payload, nil)
	if err != nil {
		return false
	}
	message.Consumer, message.Source = broker, "shop"
	outcome, err := handlers.Handle(ctx, message)
	s.Delivered++
	if outcome == inbox.Duplicate {
		s.Duplicates++
	}
	if err == nil {
		s.Confirmed[broker]++
	}
	return err == nil
}
