package worker

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/driver/sqlserver"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"

	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/integration/chaos/scenario"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

// transactionPatience ends a transaction whose connection is dead.
const transactionPatience = 4 * time.Second

// producer is an application that writes at a rate, whatever the outcome of its transactions.
type producer struct {
	db     *gorm.DB
	ledger *scenario.Ledger
	random *rand.Rand
	keys   int
}

func produce(ctx context.Context, ledger *scenario.Ledger) error {
	db, err := openApplication()
	if err != nil {
		return err
	}
	seed, err1 := strconv.ParseUint(os.Getenv(SeedVariable), 10, 64)
	rate, err2 := number(RateVariable)
	keys, err3 := number(KeysVariable)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	p := &producer{db: db, ledger: ledger, random: rand.New(rand.NewPCG(seed, 0)), keys: int(keys)}
	ticker := time.NewTicker(time.Second / time.Duration(rate))
	defer ticker.Stop()
	for ctx.Err() == nil {
		if err := p.once(context.WithoutCancel(ctx)); err != nil { // at SIGTERM, it finishes what it has begun
			return err
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	if err := closeApplication(db); err != nil {
		return err
	}
	return ended(ledger, scenario.Line{})
}

// openApplication makes the handle with the plugin. It does not connect.
func openApplication() (*gorm.DB, error) {
	cfg, err := config.Load(os.Getenv(ConfigVariable))
	if err != nil {
		return nil, err
	}
	db, err := openDatabase(cfg.Databases["default"], 2)
	if err != nil {
		return nil, err
	}
	return db, db.Use(gormplugin.New(scenario.Catalog(), cfg.Routing()))
}

// openDatabase makes a handle on a pool that sometimes loses the answer to a commit. It does not
// connect.
func openDatabase(cfg config.Database, conns int) (*gorm.DB, error) {
	pool, err := openForgetful(cfg)
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(conns)
	pool.SetMaxIdleConns(conns) // of the two that are the default the others would be closed after each use
	var dialector gorm.Dialector
	switch cfg.Driver {
	case outbox.MySQL:
		dialector = mysql.New(mysql.Config{Conn: pool, SkipInitializeWithVersion: true})
	case outbox.SQLServer:
		dialector = sqlserver.New(sqlserver.Config{Conn: pool})
	default:
		dialector = postgres.New(postgres.Config{Conn: pool})
	}
	return gorm.Open(dialector, &gorm.Config{Logger: logger.Discard, DisableAutomaticPing: true})
}

func closeApplication(db *gorm.DB) error {
	pool, err := db.DB()
	if err != nil {
		return err
	}
	return pool.Close()
}

// plan is one transaction, decided before it begins.
type plan struct {
	tx       string
	accounts []string // in order, against deadlocks
	undone   string   // an account that is written after a savepoint which is rolled back to; "" = none
	noted    bool     // with an event that has no aggregate
	late     bool     // raises once more after the save
	end      func() error
	unit     bool // by uow.Do
}

var errOnPurpose = errors.New("worker: rolled back on purpose")

func (p *producer) plan() plan {
	all := p.random.Perm(p.keys)[:1+p.random.IntN(3)]
	slices.Sort(all)
	made := plan{tx: uuid.NewString(), noted: p.random.IntN(6) == 0, late: p.random.IntN(4) == 0, unit: p.random.IntN(4) == 0}
	for _, n := range all {
		made.accounts = append(made.accounts, fmt.Sprintf("account-%03d", n))
	}
	if len(made.accounts) > 1 && p.random.IntN(4) == 0 {
		last := len(made.accounts) - 1
		made.undone, made.accounts = made.accounts[last], made.accounts[:last]
	}
	switch p.random.IntN(20) {
	case 0, 1:
		made.end = func() error { return errOnPurpose }
	case 2:
		made.end = func() error { panic(errOnPurpose) }
	}
	return made
}

// written is what a transaction has claimed until its outcome is known.
type written struct {
	accounts []*scenario.Account
	facts    []scenario.Fact
	complete bool // only the commit was missing
}

// once runs one transaction and records its outcome.
func (p *producer) once(ctx context.Context) error {
	made := p.plan()
	done := &written{}
	err := p.transaction(ctx, made.unit, func(tx *gorm.DB) error { return p.write(tx, &made, done) })
	line := scenario.Line{Tx: made.tx, Outcome: scenario.Committed}
	if err != nil {
		line.Outcome, line.Why = scenario.RolledBack, brief(err)
	}
	if err != nil && done.complete {
		line.Outcome = scenario.Unknown
	}
	if err := p.ledger.Write(line); err != nil || line.Outcome != scenario.Unknown {
		return err
	}
	return p.repeat(ctx, made.tx, done)
}

// transaction runs one transaction of either kind and turns a panic into an error.
func (p *producer) transaction(ctx context.Context, unit bool, work func(tx *gorm.DB) error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("worker: panic: %v", r)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, transactionPatience)
	defer cancel()
	if unit {
		return uow.Do(ctx, p.db, func(u *uow.Unit) error { return work(u.DB) })
	}
	return p.db.WithContext(ctx).Transaction(work)
}

func (p *producer) write(tx *gorm.DB, made *plan, done *written) error {
	*done = written{}
	for _, id := range made.accounts {
		if err := p.move(tx, made, id, done); err != nil {
			return err
		}
	}
	if made.noted {
		if err := uow.Publish(tx, scenario.Noted{Tx: made.tx, N: len(done.facts)}); err != nil {
			return err
		}
		done.facts = append(done.facts, scenario.Fact{Tx: made.tx, N: len(done.facts), Published: true})
	}
	if made.undone != "" {
		forgotten := &written{facts: slices.Clone(done.facts)}
		err := tx.Transaction(func(inner *gorm.DB) error {
			if err := p.move(inner, made, made.undone, forgotten); err != nil {
				return err
			}
			return errOnPurpose
		})
		if !errors.Is(err, errOnPurpose) {
			return err
		}
	}
	if err := tx.Create(&done.facts).Error; err != nil {
		return err
	}
	if made.end != nil {
		return made.end()
	}
	done.complete = true
	return nil
}

// move changes one account and raises events on it.
func (p *producer) move(tx *gorm.DB, made *plan, id string, done *written) error {
	account := &scenario.Account{}
	if err := lock(tx).Take(account, "id = ?", id).Error; err != nil {
		return err
	}
	events := 1 + p.random.IntN(3)
	first := account.Seq
	account.Seq += int64(events)
	raise := func(seq int64) {
		moved := scenario.Moved{Tx: made.tx, N: len(done.facts), Account: id, Seq: seq, Note: strings.Repeat("x", p.random.IntN(300))}
		published := p.random.IntN(3) > 0
		if published {
			account.Raise(moved)
		} else {
			account.Raise(scenario.Audited(moved))
		}
		done.facts = append(done.facts, scenario.Fact{Tx: made.tx, N: moved.N, Account: id, Seq: seq, Published: published})
	}
	for n := range events - 1 {
		raise(first + int64(n) + 1)
	}
	if made.late {
		if err := tx.Save(account).Error; err != nil {
			return err
		}
	}
	raise(account.Seq)
	done.accounts = append(done.accounts, account)
	if made.late {
		return nil
	}
	return tx.Save(account).Error
}

// lock lets a query lock what it finds.
func lock(tx *gorm.DB) *gorm.DB {
	if tx.Name() == string(outbox.SQLServer) { // which has hints in place of FOR UPDATE
		return tx.Table("accounts WITH (UPDLOCK, ROWLOCK)")
	}
	return tx.Clauses(clause.Locking{Strength: "UPDATE"})
}

// errNothingThere ends the repetition of a transaction that had not committed.
var errNothingThere = errors.New("worker: it had not been committed")

// While the network is still impaired, a commit is looked up a few times.
const (
	lookups     = 6
	lookupPause = 500 * time.Millisecond
)

// repeat saves the same aggregates once more after a commit of unknown outcome. If the commit had
// happened, the same events reach the outbox under the same ids, which must add no rows. If not,
// other transactions may have used the sequence: the events are dropped with their structs.
func (p *producer) repeat(ctx context.Context, tx string, done *written) error {
	line := scenario.Line{Tx: tx, Repeated: true, Outcome: scenario.Unknown}
	for range lookups {
		err := p.transaction(ctx, false, func(db *gorm.DB) error { return p.saveAgain(db, tx, done) })
		if err == nil {
			line.Outcome, line.Why = scenario.Committed, ""
			break
		}
		if line.Why = brief(err); errors.Is(err, errNothingThere) {
			break
		}
		wait(ctx, lookupPause)
	}
	return p.ledger.Write(line)
}

func (p *producer) saveAgain(db *gorm.DB, tx string, done *written) error {
	var there int64
	if err := db.Model(&scenario.Fact{}).Where("tx = ?", tx).Count(&there).Error; err != nil {
		return err
	}
	if there == 0 {
		return errNothingThere
	}
	for _, account := range done.accounts {
		if err := db.Model(account).Update("touched", gorm.Expr("touched + 1")).Error; err != nil {
			return err
		}
	}
	return nil
}

// brief shortens an error for the ledger.
func brief(err error) string {
	if errors.Is(err, errOnPurpose) || errors.Is(err, errNothingThere) || errors.Is(err, sql.ErrTxDone) {
		return err.Error()
	}
	text := err.Error()
	return text[:min(len(text), 200)]
}
