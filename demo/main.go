// Command demo is the main job on nothing but Go: an ordering service on SQLite places orders
// through GORM, and a relay delivers their events through the real adapters to a Redis-protocol
// server, to Google's Pub/Sub emulator and to a webhook, all in this process. A consumer in a
// process of its own keeps projections of the first two with the inbox. Each broker is gone for a
// moment, and the consumer's process is killed again and again; nothing is lost, and the
// projections agree with the shop's tables.
//
// Exit codes: 0 done, 1 failed, 2 wrong usage.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/mattn/go-isatty"
	"github.com/redis/go-redis/v9"
)

func main() {
	if code, ok := consumerMain(); ok {
		os.Exit(code)
	}
	redis.SetLogger(silence{}) // it would print each failed dial of an outage, which the view sums up
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := command(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// silence is a log of the Redis client's that keeps nothing.
type silence struct{}

// Printf implements the client's interface.
func (silence) Printf(context.Context, string, ...any) {}

const usage = `Show the whole outbox at work with nothing installed: a shop on SQLite, a Redis-protocol server and Google's Pub/Sub
emulator in this process, and the real adapters between them. A consumer, this program once more, adds up what it
receives in a database of its own. Each broker is gone for a moment, the consumer is killed again and again, and in
the end its numbers are compared with the shop's.
The dashboard is served meanwhile, and on a terminal until Enter is pressed.

Flags:
`

// The exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// command is main without the process around it.
func command(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	cfg, asJSON, err := parse(ctx, args, stdin, stdout, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitDone
	case err != nil:
		fmt.Fprintln(stderr, "demo:", err)
		return exitUsage
	}
	result, err := demonstrate(ctx, cfg)
	if asJSON && result != nil {
		err = errors.Join(err, json.NewEncoder(stdout).Encode(result))
	}
	if err != nil {
		fmt.Fprintln(stderr, "demo:", err)
		return exitFailed
	}
	return exitDone
}

// parse reads the command line; -h is flag.ErrHelp, and has been answered.
func parse(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) (cfg settings, asJSON bool, err error) {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // of an error, which says enough
	orders := flags.Int("orders", 1000, "place `N` orders")
	flags.BoolVar(&asJSON, "json", false, "print one JSON object and nothing else")
	listen := flags.String("listen", "127.0.0.1:8088", "`address` of the dashboard on this machine, another port where that one is taken; empty for none")
	noOpen := flags.Bool("no-open", false, "leave the browser alone; it is opened only from a terminal")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			flags.SetOutput(stdout)
			fmt.Fprint(stdout, usage)
			flags.PrintDefaults()
		}
		return cfg, false, err
	}
	if flags.NArg() > 0 {
		return cfg, false, fmt.Errorf("unknown argument %q: see --help", flags.Arg(0))
	}
	if *orders < 1 {
		return cfg, false, errors.New("--orders: place at least one")
	}
	if err := checkListen(*listen); err != nil {
		return cfg, false, fmt.Errorf("--listen: %w", err)
	}
	cfg = settings{orders: *orders, live: stdout, terminal: isTerminal(stdout), listen: *listen}
	switch {
	case asJSON:
		cfg.live = io.Discard
		if !given(flags, "listen") { // no one would learn where it is
			cfg.listen = ""
		}
		cfg.opened = func(url string) { fmt.Fprintln(stderr, "dashboard:", url) }
	case cfg.terminal && isTerminal(stdin):
		cfg.enter = stdin
		if !*noOpen {
			cfg.opened = func(url string) { browse(ctx, url) }
		}
	}
	return cfg, asJSON, nil
}

// given reports whether a flag is on the command line.
func given(flags *flag.FlagSet, name string) bool {
	found := false
	flags.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

// isTerminal reports whether a stream is a terminal that can redraw lines.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && isatty.IsTerminal(file.Fd()) && os.Getenv("TERM") != "dumb"
}
