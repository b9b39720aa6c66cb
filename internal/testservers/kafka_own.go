package testservers

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
)

// OwnKafka starts a new cluster of one node and returns when it answers. URL is its address. The
// error is [ErrNoBinary] where that is the reason.
func OwnKafka(ctx context.Context) (*Own, error) {
	cluster, err := OwnKafkaCluster(ctx, 1)
	if err != nil {
		return nil, err
	}
	return cluster.Nodes[0], nil
}

// SecuredKafka is a node that asks who may do what (StandardAuthorizer).
type SecuredKafka struct {
	*Own

	// Secured is the address of the listener where [KafkaUser] logs in, by SASL PLAIN.
	Secured string
}

// OwnSecuredKafka starts a new cluster of one node, as [OwnKafka] does.
func OwnSecuredKafka(ctx context.Context) (*SecuredKafka, error) {
	cluster, ports, err := ownKafka(ctx, 1, true, nil)
	if err != nil {
		return nil, err
	}
	return &SecuredKafka{Own: cluster.Nodes[0], Secured: net.JoinHostPort("127.0.0.1", ports[0])}, nil
}

// KafkaCluster is a cluster whose nodes can be killed one by one. Each is broker and controller. Topics
// have as many replicas as there are nodes by default, and most of them confirm (min.insync.replicas).
type KafkaCluster struct {
	Nodes []*Own // of which the first has id 1, and so on
}

// A KafkaListener is one that each node has beside that of its URL. A client is told the addresses of all
// nodes by the first one that it asks, and would go past a proxy: by a listener of its own it is told those
// of its proxies.
type KafkaListener struct {
	Name string // of capital letters, digits and underscores
	// Advertise returns the address that clients of the listener are told for a node, by its id and the
	// address at which it listens.
	Advertise func(node int, address string) (string, error)
}

// OwnKafkaCluster starts a new cluster of n nodes, with listeners of the caller's, and returns when all
// answer. The error is [ErrNoBinary] where that is the reason.
func OwnKafkaCluster(ctx context.Context, n int, further ...KafkaListener) (*KafkaCluster, error) {
	cluster, _, err := ownKafka(ctx, n, false, further)
	return cluster, err
}

func ownKafka(ctx context.Context, n int, secured bool, further []KafkaListener) (cluster *KafkaCluster, securedPorts []string, err error) {
	libs, found := findKafka(ctx)
	if !found {
		return nil, nil, noBinary(kafka)
	}
	nodes, err := newKafkaNodes(ctx, libs, n, secured, further...)
	if err != nil {
		return nil, nil, err
	}
	cluster = &KafkaCluster{}
	var starting sync.WaitGroup // none answers before most run
	failures := make([]error, n)
	for i, node := range nodes {
		own := &Own{Name: kafkaName, Version: jarVersion(libs), run: node.local(ctx)}
		cluster.Nodes = append(cluster.Nodes, own)
		securedPorts = append(securedPorts, node.secured)
		starting.Go(func() {
			failures[i] = own.begin(ctx)
			own.URL = own.Address()
		})
	}
	starting.Wait()
	if err := errors.Join(failures...); err != nil {
		return nil, nil, errors.Join(err, cluster.Close())
	}
	return cluster, securedPorts, nil
}

// URL has the addresses of all nodes, with commas between.
func (c *KafkaCluster) URL() string {
	var addresses []string
	for _, node := range c.Nodes {
		addresses = append(addresses, node.URL)
	}
	return strings.Join(addresses, ",")
}

// Close ends the nodes that run, and removes their files.
func (c *KafkaCluster) Close() error {
	var failures []error
	for _, node := range c.Nodes {
		if node.process != nil {
			failures = append(failures, node.Close())
		}
	}
	return errors.Join(failures...)
}
