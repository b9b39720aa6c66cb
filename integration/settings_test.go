package integration_test

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/brokers/gcppubsub/pubsubconsumer"
	"github.com/gorm-fanout/fanout/brokers/kafka/kafkaconsumer"
	"github.com/gorm-fanout/fanout/brokers/nats/natsconsumer"
	"github.com/gorm-fanout/fanout/brokers/rabbitmq/rabbitmqconsumer"
	"github.com/gorm-fanout/fanout/brokers/redisstreams/redisconsumer"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// The tables of docs/consuming.md have all settings of consumers, with the defaults that they have in the code.
func TestSettingsOfConsumersAreDocumented(t *testing.T) {
	t.Parallel()
	_, section, _ := strings.Cut(testenv.Page(t, "consuming.md"), "\n## Settings\n")
	section, _, _ = strings.Cut(section, "\n## ")
	common, own := map[string]string{}, map[string]string{} // the defaults
	broker := ""
	row := regexp.MustCompile(`(?m)^\| (.*?) ?\| (.*?) \| (.*?) \|`)
	for _, cells := range row.FindAllStringSubmatch(section, -1) {
		if name := strings.Trim(cells[1], "`"); name != cells[1] {
			common[name] = cells[3]
			continue
		}
		if cells[1] != "" {
			broker = cells[1]
		}
		own[broker+strings.Trim(cells[2], "`")] = cells[3]
	}

	documented := 0
	fields := reflect.VisibleFields(reflect.TypeFor[inbox.ConsumerConfig]())
	for i := range fields {
		assert.Contains(t, common, fields[i].Name)
	}
	assert.Len(t, common, len(fields)+2, "beside the two headings, no setting that there is not")
	for name, config := range map[string]any{
		"Kafka": kafkaconsumer.Config{}, "NATS": natsconsumer.Config{}, "Pub/Sub": pubsubconsumer.Config{}, "RabbitMQ": rabbitmqconsumer.Config{}, "Redis": redisconsumer.Config{},
	} {
		of := reflect.TypeOf(config)
		for i := range of.NumField() {
			if field := of.Field(i); field.IsExported() && !field.Anonymous {
				assert.Contains(t, own, name+field.Name)
				documented++
			}
		}
	}
	assert.Len(t, own, documented, "no setting that there is not")

	retry := inbox.DefaultRetry()
	assert.Equal(t, fmt.Sprint(inbox.DefaultWorkers), common["Workers"])
	assert.Equal(t, fmt.Sprint(inbox.DefaultMaxOutstandingMessages), common["MaxOutstandingMessages"])
	assert.Equal(t, fmt.Sprintf("%d MiB", inbox.DefaultMaxOutstandingBytes>>20), common["MaxOutstandingBytes"])
	assert.Equal(t, spoken(inbox.DefaultTimeout), common["Timeout"])
	assert.Equal(t, spoken(inbox.DefaultShutdownTimeout), common["ShutdownTimeout"])
	assert.Equal(t, fmt.Sprintf("%d attempts, %s apart at first, twice as long after each, %s at most, ±%.0f %%",
		retry.MaxAttempts, spoken(retry.BaseDelay), spoken(retry.MaxDelay), 100*retry.Jitter), common["Retry"])
	assert.InDelta(t, 2, retry.Multiplier, 0)
	assert.Equal(t, redisconsumer.DeadStream("<stream>", "<group>"), strings.Split(common["DeadLetters"], "`")[1])
	assert.Equal(t, spoken(pubsubconsumer.DefaultLease), own["Pub/SubLease"])
	assert.Equal(t, spoken(pubsubconsumer.DefaultMaxExtension), own["Pub/SubMaxExtension"])
	assert.Equal(t, spoken(redisconsumer.DefaultClaimAfter), own["RedisClaimAfter"])
	assert.Equal(t, spoken(redisconsumer.DefaultBlock), own["RedisBlock"])
}

// spoken is a time as the pages write it.
func spoken(d time.Duration) string {
	switch {
	case d%time.Hour == 0:
		return fmt.Sprint(int(d.Hours()), " h")
	case d%time.Minute == 0:
		return fmt.Sprint(int(d.Minutes()), " min")
	default:
		return fmt.Sprint(int(d.Seconds()), " s")
	}
}
