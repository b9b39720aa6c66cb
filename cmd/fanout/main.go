// Command fanout migrates and relays an outbox, looks at it and repairs it.
//
// Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout/cmd/fanout/internal/clients"
	"github.com/gorm-fanout/fanout/config"
)

func main() {
	redis.SetLogger(redisLog) // its client would print to standard error, past our log
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// The exit codes, which scripts rely on.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// usageError marks a command line that was wrong.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// run is main without the process around it.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := rootCommand() //nolint:contextcheck // commands take the context of ExecuteContext
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	_, _ = fmt.Fprintln(stderr, "fanout:", legible(err))
	var (
		usage    usageError
		problems *config.Error
	)
	if errors.As(err, &usage) || errors.As(err, &problems) {
		return exitUsage
	}
	return exitFailed
}

// legible is an error without what a terminal would obey: it may repeat what a server or a row
// said.
func legible(err error) string {
	lines := strings.Split(err.Error(), "\n")
	for i := range lines {
		lines[i] = printable(strings.TrimPrefix(strings.TrimPrefix(lines[i], "fanout: "), "monitor: "))
	}
	return strings.Join(lines, "\n")
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "fanout",
		Short:         "A transactional outbox for GORM that fans out to many brokers",
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       thisBuild().Version,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(unknownFlag)
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	grouped(root, groupSetUp, "Set up:", schemaCommand(), validateCommand(), migrateCommand(), contractCommand())
	grouped(root, groupRun, "Deliver:", relayCommand(), purgeCommand())
	grouped(root, groupLook, "Look:", statusCommand(), traceCommand(), workersCommand(), auditCommand())
	grouped(root, groupAct, "Look and act:", messagesCommand(), brokerCommand(), inboxCommand())
	grouped(root, groupOther, "Other:", versionCommand(), noticesCommand())
	root.SetHelpCommandGroupID(groupOther)
	root.SetCompletionCommandGroupID(groupOther)
	return root
}

// configFlag adds --config, which every command that works on a real outbox needs.
func configFlag(cmd *cobra.Command) *string {
	path := cmd.Flags().StringP("config", "c", "fanout.yaml", "configuration `file`")
	if err := cmd.MarkFlagFilename("config", "yaml", "yml"); err != nil { // it was added just now
		panic(err)
	}
	return path
}

// load reads the configuration and prints its warnings, for a command that delivers nothing:
// brokers of types that another program registers are no obstacle to it, nor are credentials of
// brokers and consumers that are not at hand.
func load(cmd *cobra.Command, path string) (*config.Config, error) {
	return loadWith(cmd, path, config.WithUnsetVariables("consumers", "brokers", "monitor"))
}

func loadWith(cmd *cobra.Command, path string, opts ...config.Option) (*config.Config, error) {
	cfg, err := config.Load(path, append(opts, config.WithBrokerTypes(clients.Types()...))...)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: name the file with --config", err)
	}
	if err != nil {
		var problems *config.Error
		if !errors.As(err, &problems) { // an unreadable file is as wrong as its content
			err = usageError{err}
		}
		return nil, err
	}
	for _, warning := range cfg.Warnings {
		_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "warning:", printable(fmt.Sprint(warning)))
	}
	return cfg, nil
}
