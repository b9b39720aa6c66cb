package uow_test

import (
	"context"
	"errors"
	"fmt"

	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/fanouttest"
	"github.com/gorm-fanout/fanout/uow"
)

type Deposited struct{ Amount int }

type Account struct {
	ID      string
	Balance int
	Version int
	uow.Aggregate
}

var errStale = errors.New("another process was faster")

// save writes an account unless it has changed since it was loaded.
func save(tx *gorm.DB, account *Account) error {
	loaded := account.Version
	account.Version++
	result := tx.Model(account).Where("version = ?", loaded).Select("balance", "version").Updates(account)
	if result.Error == nil && result.RowsAffected == 0 {
		return errStale
	}
	return result.Error
}

// A unit of work that loses against another one is run again. It loads inside what it changes, so
// that the second attempt works on what the other one left. (In a test there is a *testing.T, and
// InExample is not needed.)
func ExampleDo_retry() {
	fanouttest.InExample(func(t fanouttest.TB) {
		events := envelope.NewCatalog("banking")
		envelope.Register[Deposited](events)
		db := fanouttest.Open(t, events, &Account{})
		db.Create(&Account{ID: "1", Balance: 100})

		attempts := 0
		err := uow.Do(context.Background(), db, func(u *uow.Unit) error {
			var account Account
			if err := u.DB.First(&account, "id = ?", "1").Error; err != nil {
				return err
			}
			if attempts++; attempts == 1 {
				account.Version-- // as if another process had saved it since
			}
			account.Balance += 50
			account.Raise(Deposited{50})
			return save(u.DB, &account)
		}, uow.WithRetry(3), uow.WithRetryIf(func(err error) bool { return errors.Is(err, errStale) || uow.IsConflict(err) }))

		var account Account
		var messages int64
		db.First(&account)
		db.Table("outbox_messages").Count(&messages)
		fmt.Println(err, "- attempts:", attempts, "balance:", account.Balance, "messages:", messages)
	})
	// Output: <nil> - attempts: 2 balance: 150 messages: 1
}

// Invoice is a domain object that hides its fields. GORM has never heard of it: its rows are
// written by hand.
type Invoice struct {
	number string
	uow.Aggregate
}

type InvoiceSent struct{ Number string }

func (i *Invoice) Send() { i.Raise(InvoiceSent{i.number}) }

// An aggregate that is no GORM model is tracked with the name and the key that its events are to
// carry.
func ExampleTrack_withSource() {
	fanouttest.InExample(func(t fanouttest.TB) {
		events := envelope.NewCatalog("billing")
		envelope.Register[InvoiceSent](events)
		db := fanouttest.Open(t, events)
		db.Exec("CREATE TABLE invoices (number text, sent bool)")

		invoice := &Invoice{number: "2026-17"}
		err := uow.Do(context.Background(), db, func(u *uow.Unit) error {
			invoice.Send()
			if err := u.DB.Exec("INSERT INTO invoices VALUES (?, ?)", invoice.number, true).Error; err != nil {
				return err
			}
			return u.Track(invoice, uow.WithSource(envelope.Source{Aggregate: "Invoice", ID: invoice.number}))
		})

		var stream, key string
		row := db.Raw("SELECT stream, ordering_key FROM outbox_messages").Row()
		fmt.Println(err, row.Scan(&stream, &key), stream, key)
	})
	// Output: <nil> <nil> billing::invoice billing::invoice-2026-17
}
