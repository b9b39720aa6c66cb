package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/glebarez/sqlite"
	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/driver/sqlserver"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/monitor"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

func inboxCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inbox",
		Short: "List dead letters of consumers, and redrive them",
		Long: "List dead letters of consumers, and redrive them: let them be tried again. These commands work on databases of consumers\n" +
			"that use the inbox; docs/consuming.md says what becomes a dead letter.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(inboxMigrateCommand(), deadLettersCommand(), inboxRedriveCommand())
	return cmd
}

// inboxTarget are the flags that say on which tables a command works.
type inboxTarget struct {
	*target

	table *string
}

func inboxFlags(cmd *cobra.Command) *inboxTarget {
	return &inboxTarget{targetFlags(cmd), cmd.Flags().String("table", inbox.DefaultTable, "the consumer's inbox table")}
}

// each asks one database after the other. One that fails does not keep it from the others.
func (t *inboxTarget) each(cmd *cobra.Command, ask func(ctx context.Context, at inboxAt, db *gorm.DB, table inbox.Option) error) error {
	session, err := t.open(cmd) // it says what is wrong with a database, and keeps its password to itself
	if err != nil {
		return err
	}
	defer session.Close()
	return session.each(func(name string) error {
		db, err := openHandle(session.cfg.Databases[name])
		if err != nil {
			return fmt.Errorf("database %q cannot be opened: see \"fanout validate\"", name)
		}
		pool, err := db.DB()
		if err != nil {
			return err
		}
		defer pool.Close()
		if err := ask(cmd.Context(), inboxAt{cmd, session, name, *t.table}, db, inbox.WithTable(*t.table)); err != nil {
			return fmt.Errorf("database %q: %w", name, err)
		}
		return nil
	})
}

// inboxAt is a database whose inbox a command works on.
type inboxAt struct {
	cmd      *cobra.Command
	session  *session
	database string
	table    string
}

// auditedIDs is how many message ids stand in an audit entry.
const auditedIDs = 50

// record does something that leaves an entry in the audit of the database, whose table is one of
// the outbox. Where a consumer's database has no outbox there is no audit, which is said.
func (a *inboxAt) record(ctx context.Context, actor monitor.Actor, action string, filter map[string]any, do func() (int64, error)) error {
	for name, value := range filter {
		if ids, ok := value.([]uuid.UUID); value == "" || ok && len(ids) == 0 {
			delete(filter, name)
		}
	}
	filter["table"] = a.table
	text, err := json.Marshal(filter)
	if err != nil { // texts and numbers always encode
		return err
	}
	done := false
	entry := admin.AuditEntry{Actor: actor.Name, Via: actor.Via, Action: action, Filter: string(text)}
	err = a.session.Record(ctx, a.database, entry, func(int64) (int64, error) {
		done = true
		return do()
	})
	if done || !errors.Is(err, outbox.ErrSchema) {
		return err
	}
	a.cmd.PrintErrf("warning: database %s has no outbox, so there is no audit in which this could be recorded: \"fanout migrate\" makes one\n", a.database)
	_, err = do()
	return err
}

// openHandle opens a database as a consumer would.
func openHandle(database config.Database) (*gorm.DB, error) {
	dsn := database.DSN.Reveal()
	var dialector gorm.Dialector
	switch database.Driver {
	case outbox.Postgres:
		dialector = postgres.Open(dsn)
	case outbox.SQLServer:
		dialector = sqlserver.Open(dsn)
	case outbox.MySQL:
		dialector = mysql.Open(dsn)
	default:
		separator := "?"
		if strings.Contains(dsn, "?") {
			separator = "&"
		}
		dialector = sqlite.Open(dsn + separator + "_pragma=busy_timeout(10000)")
	}
	return gorm.Open(dialector, &gorm.Config{Logger: logger.Discard})
}

func inboxMigrateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Create or update the inbox table",
		Long: "Create or update the inbox table. Running it again changes nothing. A table that another migration tool has made is recorded.\n" +
			"With --print the SQL goes to standard output for another migration tool, and no database is touched.",
		Args: noArgs,
	}
	target := inboxFlags(cmd)
	printOnly := printFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *printOnly {
			return printAll(cmd, target.target, func(cmd *cobra.Command, cfg *config.Config, database string) error {
				steps, err := inbox.Migrations(string(cfg.Databases[database].Driver), *target.table)
				for _, step := range steps {
					printStep(cmd, cfg, database, step.String(), step.SQL)
				}
				return err
			})
		}
		return target.each(cmd, func(ctx context.Context, at inboxAt, db *gorm.DB, table inbox.Option) error {
			steps, err := inbox.Migrate(ctx, db, table)
			if err == nil {
				printSteps(cmd, at.database, steps)
			}
			return err
		})
	}
	return cmd
}

// wireDeadLetter is a dead letter as it is printed.
type wireDeadLetter struct {
	Database       string            `json:"database"`
	Consumer       string            `json:"consumer"`
	MessageID      uuid.UUID         `json:"message_id"`
	Type           string            `json:"type"`
	Source         string            `json:"source"`
	Attempts       int               `json:"attempts"`
	DeadLetteredAt time.Time         `json:"dead_lettered_at"`
	LastError      inbox.LastError   `json:"last_error"`
	Payload        json.RawMessage   `json:"payload,omitempty"`
	PayloadBase64  []byte            `json:"payload_base64,omitempty"` // in place of payload, where that is no text
	Attributes     map[string]string `json:"attributes,omitempty"`
}

func deadLettersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "dead-letters",
		Short:   "List the dead letters of consumers, and why they failed",
		Example: "  fanout inbox dead-letters --consumer billing\n  fanout inbox dead-letters --type Ordering.OrderPlaced.v2 --json --payload",
		Args:    noArgs,
	}
	target := inboxFlags(cmd)
	consumer := cmd.Flags().String("consumer", "", "only those of this consumer")
	messageType := cmd.Flags().String("type", "", "only those of this type, as on the wire")
	limit := cmd.Flags().Int("limit", inbox.DefaultPage, "most messages to list of each database")
	payload := cmd.Flags().Bool("payload", false, "print payloads and attributes, too; with --json; it is recorded in the audit")
	asJSON := jsonFlag(cmd, jsonLines)
	actor := actorFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *limit < 1 || *limit > inbox.MaxPage {
			return usageError{fmt.Errorf("--limit is %d: use 1 to %d", *limit, inbox.MaxPage)}
		}
		if *payload && !*asJSON {
			return usageError{errors.New("--payload is for --json")}
		}
		now := time.Now()
		out := newOutput(cmd, *asJSON, "DATABASE", "CONSUMER", "MESSAGE", "TYPE", "SOURCE", "ATTEMPTS", "SINCE", "LAST ERROR")
		names := &inboxNames{table: *target.table}
		err := target.each(cmd, func(ctx context.Context, at inboxAt, db *gorm.DB, of inbox.Option) (err error) {
			var page []inbox.DeadLetter
			read := func() (int64, error) {
				page, err = inbox.DeadLetters(ctx, db, inbox.DeadLetterFilter{Consumer: *consumer, Type: *messageType, Limit: *limit}, of)
				return int64(len(page)), err
			}
			if *payload {
				err = at.record(ctx, actor(), "inbox reveal", map[string]any{"consumer": *consumer, "type": *messageType, "limit": *limit}, read)
			} else {
				_, err = read()
			}
			if err != nil {
				return err
			}
			return errors.Join(names.look(ctx, db, len(page), *consumer, *messageType), addDeadLetters(out, at.database, page, *payload, now))
		})
		names.failed = err != nil
		if err := names.unknown(*consumer, *messageType); err != nil {
			return err
		}
		return out.end(err, "there are no dead letters")
	}
	return cmd
}

func addDeadLetters(out *output, database string, page []inbox.DeadLetter, payload bool, now time.Time) error {
	for i := range page {
		m := &page[i]
		if err := out.add(toDeadLetter(database, m, payload),
			text(database), text(m.Consumer), text(m.Key.String()), text(m.Type), text(m.Source), textf("%d", m.Attempts), text(since(m.At, now)),
			text(shorten(m.LastError.Message))); err != nil {
			return err
		}
	}
	return nil
}

func toDeadLetter(database string, m *inbox.DeadLetter, payload bool) wireDeadLetter {
	line := wireDeadLetter{
		Database: database, Consumer: m.Consumer, MessageID: m.Key, Type: m.Type, Source: m.Source, Attempts: m.Attempts, DeadLetteredAt: m.At, LastError: m.LastError,
	}
	if payload {
		line.Attributes, line.Payload = m.Attributes, m.Payload
		switch {
		case !utf8.Valid(m.Payload): // a Protobuf message, say
			line.Payload, line.PayloadBase64 = nil, m.Payload
		case !json.Valid(m.Payload): // it may be what could not be read
			line.Payload, _ = json.Marshal(string(m.Payload)) //nolint:errchkjson // a string
		}
	}
	return line
}

func inboxRedriveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "redrive [MESSAGE-ID...]",
		Short: "Let dead letters of a consumer be tried again, with a new budget of attempts",
		Long: "Let dead letters of a consumer be tried again, with a new budget of attempts: the next copy that comes is handled, and a service\n" +
			"that runs an inbox.Redeliverer handles the stored payload.",
		Example: "  fanout inbox redrive --consumer billing 01a1fd9d-d6b8-7eca-9afc-000000000001\n  fanout inbox redrive --consumer billing --all --type Ordering.OrderPlaced.v2",
	}
	target := inboxFlags(cmd)
	consumer := cmd.Flags().String("consumer", "", "whose messages; required")
	all := cmd.Flags().Bool("all", false, "all dead letters")
	messageType := cmd.Flags().String("type", "", "with --all, only those of this type")
	source := cmd.Flags().String("source", "", "with message ids, only those of this source: two sources can have one id")
	actor := actorFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		keys := make([]uuid.UUID, 0, len(args))
		for _, arg := range args {
			key, err := uuid.Parse(arg)
			if err != nil {
				return usageError{fmt.Errorf("%q is no message id: use a UUID", arg)}
			}
			keys = append(keys, key)
		}
		switch {
		case *consumer == "":
			return usageError{errors.New("name the --consumer: \"fanout inbox dead-letters\" shows it")}
		case *all == (len(keys) > 0), *messageType != "" && !*all:
			return usageError{errors.New("give message ids, or --all, and --type only with that")}
		case *all && *source != "":
			return usageError{errors.New("give --source with message ids, and not with --all")}
		}
		names := &inboxNames{table: *target.table}
		err := target.each(cmd, func(ctx context.Context, at inboxAt, db *gorm.DB, table inbox.Option) error {
			filter := map[string]any{"consumer": *consumer, "type": *messageType, "source": *source, "message_ids": keys[:min(len(keys), auditedIDs)]}
			if more := len(keys) - auditedIDs; more > 0 {
				filter["more_message_ids"] = more
			}
			return at.record(ctx, actor(), "inbox redrive", filter, func() (n int64, err error) {
				if *all {
					n, err = inbox.RedriveAll(ctx, db, *consumer, *messageType, table)
				} else {
					n, err = inbox.Redrive(ctx, db, *consumer, *source, keys, table)
				}
				if err == nil {
					cmd.Printf("%s: %s redriven\n", at.database, messages(n))
					err = names.look(ctx, db, int(n), *consumer, *messageType)
				}
				return n, err
			})
		})
		names.failed = err != nil
		return errors.Join(err, names.unknown(*consumer, *messageType), names.missing(*consumer, keys))
	}
	return cmd
}
