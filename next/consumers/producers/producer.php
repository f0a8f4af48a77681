<?php
// php producer.php schedule 42    close order 42 in 15 minutes
// php producer.php cancel 42      cancel this job
[, $command, $order] = $argv;
$address = parse_url(getenv('REDIS_URL') ?: 'redis://localhost:6379');
$redis = new Redis();
$redis->connect($address['host'], $address['port'] ?? 6379);

$envelope = [
    'v' => 1, 'id' => "close-$order", 'name' => 'order.close', 'queue' => 'orders', 'data' => ['order_id' => (int) $order],
    'attempts' => 0, 'created_ms' => (int) (microtime(true) * 1000),
];
$arguments = [ // of both scripts, by the names in index.json
    'now' => '', 'id' => "close-$order", 'queue' => 'orders', 'wake' => 'delayq:wake', 'once_ms' => 0,
    'envelope' => json_encode($envelope), 'when' => '+900000', 'lock' => '',
    'taken' => 'kept', 'high_water' => 100000, 'lease_ms' => 30000, 'shards' => 1,
    'running' => 0, 'hint' => 'delayq:cancel', 'only' => '', 'failure' => '',
];
$script = json_decode(file_get_contents('lua/index.json'), true)[$command];
$keys = array_map(fn ($key) => "delayq:{orders}:$key", $script['keys']);
$words = [...$keys, ...array_map(fn ($name) => $arguments[$name], [...$script['argv'], ...$script['row']])];

if ($command === 'schedule') {
    $redis->sAdd('delayq:queues', 'orders'); // so that workers find the queue
}
$reply = $redis->evalSha($script['sha1'], $words, count($keys));
if (str_starts_with($redis->getLastError() ?? '', 'NOSCRIPT')) {
    $redis->clearLastError();
    $reply = $redis->eval(file_get_contents("lua/$command.lua"), $words, count($keys));
}
if ($reply === false) {
    throw new RuntimeException($redis->getLastError());
}
if ($reply[0] === 'moved') {
    throw new RuntimeException("The queue has $reply[1] shards, so nothing was stored.");
}
// `schedule` replies {'0', now_ms} if the job was created, or else {is_new, answer, …}. `cancel` replies {answer, …}.
echo $command === 'cancel' ? $reply[0] : (count($reply) === 2 ? 'created' : $reply[1]), "\n";
