package config

import "time"

// Webhook is what a broker of type webhook takes beside its URL; package webhook has options of the same
// names.
type Webhook struct {
	// Secrets sign each message, 1 to 5 of them: one, or the new and the old one while the receiver
	// changes over. Required.
	Secrets []Secret
	// Concurrency is how many requests are under way at once, 1 to 256. Default: 8.
	Concurrency int
	// RequestTimeout bounds one request. Default: 15 s.
	RequestTimeout time.Duration
	// AllowHTTP allows a URL without TLS. Default: false.
	AllowHTTP bool
	// AllowPrivateNetworks allows an endpoint whose address is not public. Default: false.
	AllowPrivateNetworks bool
}

const mostRequests = 256 // of package webhook

// readWebhook reads the keys of brokers of type webhook, also of others, which then refuse them.
func (o *object) readWebhook(webhook *Webhook) {
	for _, item := range o.list("secrets") {
		webhook.Secrets = append(webhook.Secrets, Secret(item.text))
	}
	o.integer("concurrency", &webhook.Concurrency, mostRequests)
	o.duration("request_timeout", &webhook.RequestTimeout, time.Millisecond)
	o.boolean("allow_http", &webhook.AllowHTTP)
	o.boolean("allow_private_networks", &webhook.AllowPrivateNetworks)
}

// checkWebhook compares the keys of a broker of type webhook with each other. The broker looks at secrets
// and addresses.
func (r *reader) checkWebhook(entry *object, broker *Broker) {
	r.require(entry, "url", "https://partner.example/hooks")
	r.require(entry, "secrets", "[whsec_...]")
	if broker.Webhook.AllowHTTP {
		r.checkScheme(entry, broker.URL, "https://", "http://")
	} else {
		r.checkScheme(entry, broker.URL, "https://")
	}
	r.checkURL(entry, "url", broker.URL)
	r.checkTLS(entry, broker.URL, "https://")
}

// checkRequestTimeout refuses a bound of a request that never comes into effect.
func (r *reader) checkRequestTimeout(section *outboxSection, target *target, request, publish time.Duration) {
	if target.sound("request_timeout", "publish_timeout") && section.sound("publish_timeout") && request > publish {
		r.problemf(target.where("request_timeout"), target.path+".request_timeout", "is %s, longer than publish_timeout (%s), which ends the request before",
			short(request), short(publish))
	}
}
