//go:build unix

package chaos

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is the result of a run.
type Report struct {
	Seed       uint64            `json:"seed"`
	Broken     string            `json:"broken,omitempty"`
	Faulty     time.Duration     `json:"faulty"`    // how long faults went on
	Drained    time.Duration     `json:"drained"`   // how long the backlog of rows then took
	CaughtUp   time.Duration     `json:"caught_up"` // and how long consumers took after that
	Schedule   Schedule          `json:"schedule"`
	Performed  map[Kind]int      `json:"performed"`
	InPipeline int64             `json:"in_pipeline"`       // stops of StopInPipeline that met a transaction half sent
	Locked     int64             `json:"locked"`            // rows that LockRows and UpdateRows have locked
	Skipped    []string          `json:"skipped,omitempty"` // what could not be done here
	Producers  Transactions      `json:"producers"`
	Brokers    []BrokerVerdict   `json:"brokers"`
	Consumers  []ConsumerVerdict `json:"consumers"`
	LeaseLost  int64             `json:"lease_lost"` // rows whose late mark changed nothing, by relays that ended in good order
	Processes  []ProcessReport   `json:"processes"`
	Graceful   int               `json:"graceful"` // ends of processes in good order
	Sessions   int               `json:"sessions"` // of the database, when all had ended
	Violations []Violation       `json:"violations"`
}

// Transactions are what producers wrote down.
type Transactions struct {
	Committed  int `json:"committed"`
	RolledBack int `json:"rolled_back"`
	Unknown    int `json:"unknown"`
	Completed  int `json:"completed"` // of the unknown: found committed, and saved once more
	Events     int `json:"events"`    // that the database holds
}

// ProcessReport is one process of the cluster.
type ProcessReport struct {
	Name        string `json:"name"`
	Starts      int    `json:"starts"`
	WrongClocks int    `json:"wrong_clocks"` // starts with a clock that was off
	Away        int    `json:"away"`         // ended by itself because a server was not there
	PeakMemory  int64  `json:"peak_memory"`  // bytes
	PeakConns   int    `json:"peak_conns"`   // sessions of the database at a time, those of its predecessors included
}

// Violated reports whether there is a violation of a kind.
func (r *Report) Violated(rule Rule) bool {
	return slices.ContainsFunc(r.Violations, func(v Violation) bool { return v.Rule == rule })
}

// Print writes the report for people.
func (r *Report) Print(w io.Writer) {
	fmt.Fprintf(w, "\nseed %d, %s of faults, drained in %s, consumers waited for another %s\n", r.Seed, r.Faulty.Round(time.Second),
		r.Drained.Round(100*time.Millisecond), r.CaughtUp.Round(100*time.Millisecond))
	if r.Broken != "" {
		fmt.Fprintf(w, "a BROKEN build: %s\n", r.Broken)
	}
	for _, skipped := range r.Skipped {
		fmt.Fprintf(w, "SKIPPED: %s\n", skipped)
	}
	faults := []string{}
	for _, kind := range slices.Sorted(maps.Keys(r.Performed)) {
		faults = append(faults, fmt.Sprintf("%s %d", kind, r.Performed[kind]))
	}
	fmt.Fprintf(w, "faults: %s; %d relays stopped with a transaction half sent, %d rows locked\n", strings.Join(faults, ", "), r.InPipeline, r.Locked)
	p := r.Producers
	fmt.Fprintf(w, "transactions: %d committed, %d rolled back, %d of unknown outcome (%d of them had committed, and saving them again added nothing); %d events\n\n",
		p.Committed, p.RolledBack, p.Unknown, p.Completed, p.Events)

	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "broker\tevents\theld\tlost\tphantom\tout of order\tstuck\tabandoned\tleaks\tunseen\tmax attempts\tspent\tduplicates\trate\t")
	for i := range r.Brokers {
		b := &r.Brokers[i]
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.2f %%\t\n", b.Broker, b.Expected, b.Held, b.Lost, b.Phantom, b.OutOfOrder, b.Stuck,
			b.Abandoned, b.Leaks, b.Unseen, b.MaxAttempts, b.Spent, b.Duplicates, 100*b.Rate())
	}
	_ = table.Flush()
	for i := range r.Brokers {
		causes := []string{}
		for _, cause := range slices.Sorted(maps.Keys(r.Brokers[i].Causes)) {
			causes = append(causes, fmt.Sprintf("%s %d", cause, r.Brokers[i].Causes[cause]))
		}
		if len(causes) > 0 {
			fmt.Fprintf(w, "  duplicates of %s by cause: %s\n", r.Brokers[i].Broker, strings.Join(causes, ", "))
		}
	}
	for _, c := range r.Consumers {
		order := ""
		if c.Ordered {
			order = fmt.Sprintf(", %d out of order", c.OutOfOrder)
		}
		fmt.Fprintf(w, "projection of %s: %d of %d events%s, %d copies dropped, %d dead letters, %d of %d sums right\n", c.Broker, c.Handled, c.Expected, order, c.Dropped,
			c.DeadLetters, c.Right, c.Sums)
	}
	fmt.Fprintf(w, "late marks that the fence refused: %d rows\n\n", r.LeaseLost)

	table = tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "process\tstarts\twrong clock\tserver away\tpeak MiB\tpeak sessions\t")
	for _, p := range r.Processes {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t\n", p.Name, p.Starts, p.WrongClocks, p.Away, p.PeakMemory>>20, p.PeakConns)
	}
	_ = table.Flush()
	fmt.Fprintf(w, "ends in good order: %d; database sessions left: %d\n\n", r.Graceful, r.Sessions)
	r.printViolations(w)
}

func (r *Report) printViolations(w io.Writer) {
	if len(r.Violations) == 0 {
		fmt.Fprintln(w, "VERDICT: no violation")
		return
	}
	fmt.Fprintf(w, "VERDICT: %d kinds of violations\n", len(r.Violations))
	for _, v := range r.Violations {
		fmt.Fprintf(w, "  %s %s: %d\n", v.Rule, v.Broker, v.Count)
		for _, text := range v.Cases {
			fmt.Fprintf(w, "    %s\n", strings.ReplaceAll(text, "\n", "\n      "))
		}
	}
}
