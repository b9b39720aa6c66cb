package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout/monitor/api"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

func showCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show where a message has gone: its rows, one for each broker",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("%q takes the id of one message: see \"%s --help\"", cmd.CommandPath(), cmd.CommandPath())}
			}
			if err := checkID(args[0]); err != nil {
				return usageError{err}
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	target := targetFlags(cmd)
	payload := cmd.Flags().Bool("payload", false, "show payload and headers, too, which may be confidential; the audit records it")
	asJSON := jsonFlag(cmd, "print one JSON object")
	actor := actorFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		session, err := target.open(cmd)
		if err != nil {
			return err
		}
		defer session.Close()
		answer := messageAnswer{args[0], []api.Record{}}
		var rows []row
		err = session.each(func(database string) error {
			records, err := session.Event(cmd.Context(), database, args[0])
			if err == nil && *payload && len(records) > 0 { // the audit records a look only where there is something to see
				records, err = session.Reveal(cmd.Context(), actor(), database, args[0])
			}
			for i := range records {
				answer.add(database, &records[i], *payload)
				rows = append(rows, row{database, &records[i]})
			}
			return err
		})
		if err == nil && len(rows) == 0 {
			err = session.exist(cmd.Context(), admin.Filter{MessageIDs: args}, "")
		}
		if *asJSON {
			return errors.Join(err, printJSON(cmd, answer))
		}
		for i := range rows {
			if i > 0 {
				cmd.Println()
			}
			err = errors.Join(err, rows[i].print(cmd, *payload))
		}
		return err
	}
	return cmd
}

type messageAnswer struct {
	MessageID string       `json:"message_id"`
	Rows      []api.Record `json:"rows"`
}

func (m *messageAnswer) add(database string, record *admin.Record, payload bool) {
	r := api.NewRecord(database, record)
	if payload {
		r.Reveal(record)
	}
	m.Rows = append(m.Rows, r)
}

// row is a row with the database that holds it.
type row struct {
	database string
	record   *admin.Record
}

// print shows the fields of one row, without those that are empty.
func (f *row) print(cmd *cobra.Command, payload bool) error {
	out, r := cmd.OutOrStdout(), f.record
	table := &table{colour: colourful(out)}
	put := func(name, value string, as style) {
		if value != "" {
			table.add(styled(name, dim), styled(value, as))
		}
	}
	at := func(name string, at time.Time) {
		if !at.IsZero() {
			put(name, moment(at), plain)
		}
	}
	put("message", r.MessageID, bold)
	put("broker", f.database+" / "+r.Broker, bold)
	put("status", string(r.Status), statusStyle(r.Status))
	put("state", string(r.State), stateStyle(r.State))
	if wait := waitsFor(r, time.Now()); wait != "-" {
		put("waits for", wait, plain)
	}
	put("error", failureText(r.Status, errorText(r.LastError)), plain)
	if e := r.LastError; e != nil {
		at("error at", e.At)
	}
	put("attempts", strconv.Itoa(r.Attempts), plain)
	if r.Crashes > 0 {
		put("crashes", strconv.Itoa(r.Crashes), red)
	}
	put("type", r.Type, plain)
	put("stream", r.Stream, plain)
	put("key", r.OrderingKey, plain)
	put("shard", strconv.Itoa(r.Shard), plain)
	if r.Priority != 0 {
		put("priority", strconv.Itoa(r.Priority), plain)
	}
	at("written", r.CreatedAt)
	at("available", r.AvailableAt)
	at("expires", r.ExpiresAt)
	put("claimed by", r.LockedBy, plain)
	at("claimed until", r.LockedUntil)
	at("published", r.PublishedAt)
	if r.PublishedAt.IsZero() {
		at("finished", r.FinishedAt)
	}
	put("broker's id", r.BrokerMessageID, plain)
	put("aggregate type", r.AggregateType, plain)
	put("aggregate id", r.AggregateID, plain)
	put("correlation", r.CorrelationID, plain)
	put("causation", r.CausationID, plain)
	put("tenant", r.TenantID, plain)
	put("content type", r.ContentType, plain)
	put("payload", thousands(int64(r.PayloadBytes))+" bytes", plain)
	if payload {
		put("headers", r.Headers, plain)
		put("", payloadText(r), plain)
	}
	return table.print(out)
}

// payloadText is a payload for people, or why it is not shown.
func payloadText(r *admin.Record) string {
	switch {
	case r.Payload == nil && r.PayloadBytes > 0:
		return "(too large to be shown: more than " + thousands(admin.MaxShownBytes) + " bytes)"
	case utf8.Valid(r.Payload):
		return string(r.Payload)
	default:
		return "(not text: --json has it in base64)"
	}
}

// ownTime says until when a row waits that is not deferred.
func ownTime(what string, until, now time.Time) string {
	if !until.After(now) {
		return what + " now"
	}
	return what + " in " + age(until.Sub(now))
}

// failureText is the last error of a row. Of one that was published since, it says so: the row is well.
func failureText(status outbox.Status, text string) string {
	if status == outbox.StatusPublished && text != "" {
		return "before it was published: " + text
	}
	return text
}

// waitsFor says for what a row waits.
func waitsFor(r *admin.Record, now time.Time) string {
	d := r.Deferral
	switch {
	case d == nil && r.State == outbox.StateScheduled:
		return ownTime("scheduled", r.AvailableAt, now)
	case d == nil && r.State == outbox.StateBackoff:
		return ownTime("backoff", r.LockedUntil, now)
	case d == nil:
		return "-"
	}
	what := d.Reason
	if d.MessageID != r.MessageID {
		what += " of " + d.MessageID
	}
	if d.Reason == "operator" {
		return fmt.Sprintf("behind %s, abandoned %s: unblock the key, requeue or discard that message", d.MessageID, since(d.Since, now))
	}
	return ownTime(what, d.Until, now)
}

// stateStyle highlights what waits until an operator acts.
func stateStyle(s outbox.State) style {
	switch s {
	case outbox.StateBlocked, outbox.StateStranded, outbox.StateUnconfigured:
		return red
	case outbox.StatePaused, outbox.StateUnavailable:
		return yellow
	default:
		return plain
	}
}

// statusStyle highlights what may need an operator.
func statusStyle(s outbox.Status) style {
	switch s {
	case outbox.StatusFailed:
		return yellow
	case outbox.StatusAbandoned:
		return red
	default:
		return plain
	}
}
