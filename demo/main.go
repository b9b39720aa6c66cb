// Command demo shows the whole outbox at work with nothing installed; its usage says how.
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
)

func main() {
	if code, ok := consumerMain(); ok {
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := command(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

const usage = `Show the whole outbox at work with nothing installed: a shop on SQLite, a broker in memory, and webhooks for two other
companies. A consumer, this program once more, adds up what it receives in its own database. Each broker is away for a
moment, the consumer is killed three times, and in the end its numbers are compared with the shop's.
The dashboard is served meanwhile, and on a terminal until Enter is pressed.

Flags:
`

// command is main without the process around it.
func command(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	cfg := settings{live: stdout}
	flags.IntVar(&cfg.orders, "orders", 1000, "place `N` orders, at least one")
	flags.IntVar(&cfg.port, "port", 8088, "`port` of the dashboard on 127.0.0.1; another one if it is taken")
	asJSON := flags.Bool("json", false, "print the result as one JSON object, and all else to standard error")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil || flags.NArg() > 0 || cfg.orders < 1 {
		fmt.Fprintln(stderr, "demo: wrong usage: see --help")
		return 2
	}
	if *asJSON {
		cfg.live = stderr
	} else if isTerminal(stdin) && isTerminal(stdout) {
		cfg.enter = stdin
	}
	result, err := demonstrate(ctx, cfg)
	if *asJSON && result != nil {
		err = errors.Join(err, json.NewEncoder(stdout).Encode(result))
	}
	if err != nil {
		fmt.Fprintln(stderr, "demo:", err)
		return 1
	}
	return 0
}

func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && isatty.IsTerminal(file.Fd())
}
