<?php

// Laravel's payloads without its connections: what it would put on beanstalkd or SQS, and what its worker does there.
// pheanstalk and the SDK of AWS are not packaged; payloads are made by Illuminate\Queue\Queue and run by
// Illuminate\Queue\Jobs\Job all the same, which every connection of Laravel's inherits from.
//
//     php bodies.php make                      reads JSON lines from stdin (job, data | object), prints a payload each
//     php bodies.php run ATTEMPTS              runs the body on stdin, which was reserved so often
//     php bodies.php beanstalkd PORT TUBE      reserves one job there and runs it

namespace {
    require '/usr/share/php/Illuminate/Queue/autoload.php';

    function say(array $what): void
    {
        echo json_encode($what), "\n";
    }

    class Mailer
    {
        public function send($job, $data)
        {
            say(['did' => $job->getName(), 'uuid' => $job->uuid(), 'attempts' => $job->attempts(), 'data' => $data]);
            isset($data['release']) ? $job->release($data['release']) : $job->delete();
        }
    }
}

namespace App {
    use Illuminate\Bus\Queueable;
    use Illuminate\Contracts\Queue\ShouldQueue;

    class CloseOrder implements ShouldQueue
    {
        use Queueable;

        public $tries = 4;
        public $backoff = [1, 5];
        public $order_id;

        public function __construct($order_id)
        {
            $this->order_id = $order_id;
        }
    }
}

namespace {
    use Illuminate\Container\Container;
    use Illuminate\Queue\Jobs\Job;
    use Illuminate\Queue\Queue;

    class Payloads extends Queue
    {
        public function of($job, $data, $queue)
        {
            return $this->createPayload($job, $queue, $data);
        }
    }

    // As BeanstalkdJob and SqsJob: the raw body, and the server's own count of reservations.
    class Reserved extends Job
    {
        private $body;
        private $reserves;

        public function __construct(string $body, int $reserves)
        {
            [$this->body, $this->reserves, $this->container] = [$body, $reserves, new Container];
        }

        public function getJobId() { return ''; }
        public function getRawBody() { return $this->body; }
        public function attempts() { return $this->reserves; }
    }

    // The words of beanstalkd's protocol that a worker needs.
    class Tube
    {
        private $socket;

        public function __construct(int $port)
        {
            $this->socket = stream_socket_client("tcp://127.0.0.1:$port");
        }

        public function ask(string $line): string
        {
            fwrite($this->socket, "$line\r\n");

            return rtrim(fgets($this->socket));
        }

        public function data(int $length): string
        {
            return substr(stream_get_contents($this->socket, $length + 2), 0, $length);
        }
    }

    function run(string $body, int $reserves): Reserved
    {
        $job = new Reserved($body, $reserves);
        say(['tries' => $job->maxTries(), 'backoff' => $job->backoff(), 'timeout' => $job->timeout()]);
        $job->fire();

        return $job;
    }

    switch ($argv[1]) {
        case 'make':
            $payloads = new Payloads;
            $payloads->setContainer(new Container);
            while ($line = fgets(STDIN)) {
                $wish = json_decode($line, true);
                $job = isset($wish['object']) ? new App\CloseOrder($wish['object']) : $wish['job'];
                echo $payloads->of($job, $wish['data'] ?? '', 'orders'), "\n";
            }
            break;
        case 'run':
            run(stream_get_contents(STDIN), (int) $argv[2]);
            break;
        case 'beanstalkd':
            $tube = new Tube((int) $argv[2]);
            $tube->ask("watch {$argv[3]}");
            [, $id, $length] = explode(' ', $tube->ask('reserve-with-timeout 10'));
            $body = $tube->data((int) $length);
            [, $length] = explode(' ', $tube->ask("stats-job $id"));
            preg_match('/^reserves: (\d+)$/m', $tube->data((int) $length), $found);
            $job = run($body, (int) $found[1]);
            $tube->ask($job->isDeleted() ? "delete $id" : "release $id 1024 0");
            break;
    }
}
