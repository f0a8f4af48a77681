// go run producer.go schedule 42    close order 42 in 15 minutes
// go run producer.go cancel 42      cancel this job
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"
)

func main() {
	command, order := os.Args[1], must(strconv.Atoi(os.Args[2]))
	url := os.Getenv("REDIS_URL")
	if url == "" {
		url = "redis://localhost:6379"
	}
	connection := must(redis.DialURL(url))

	id := fmt.Sprintf("close-%d", order)
	envelope := must(json.Marshal(map[string]any{
		"v": 1, "id": id, "name": "order.close", "queue": "orders", "data": map[string]any{"order_id": order},
		"attempts": 0, "created_ms": time.Now().UnixMilli(),
	}))
	values := map[string]any{ // the arguments of both scripts, by their names in index.json
		"now": "", "id": id, "queue": "orders", "wake": "delayq:wake", "once_ms": 0,
		"envelope": envelope, "when": "+900000", "lock": "",
		"taken": "kept", "high_water": 100000, "lease_ms": 30000, "shards": 1,
		"running": 0, "hint": "delayq:cancel", "only": "", "failure": "",
	}
	var index map[string]struct{ Keys, Argv, Row []string }
	if err := json.Unmarshal(must(os.ReadFile("lua/index.json")), &index); err != nil {
		panic(err)
	}
	words := redis.Args{len(index[command].Keys)}
	for _, key := range index[command].Keys {
		words = words.Add("delayq:{orders}:" + key)
	}
	for _, name := range append(index[command].Argv, index[command].Row...) {
		words = words.Add(values[name])
	}

	if command == "schedule" {
		must(connection.Do("SADD", "delayq:queues", "orders")) // so that workers find the queue
	}
	text := string(must(os.ReadFile("lua/" + command + ".lua")))
	reply := must(redis.Strings(redis.NewScript(-1, text).Do(connection, words...))) // EVALSHA; EVAL after NOSCRIPT
	// `schedule` replies {'0', now_ms} if the job was created, or else {is_new, answer, …}. `cancel` replies {answer, …}.
	switch {
	case reply[0] == "moved":
		panic("the queue has " + reply[1] + " shards, so nothing was stored")
	case command == "cancel":
		fmt.Println(reply[0])
	case len(reply) == 2:
		fmt.Println("created")
	default:
		fmt.Println(reply[1])
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
