import { Tally, type Registry } from '#runtime/ops/instruments';

export function witnessMetrics(registry: Registry): (status: number) => void {
  const help = 'Requests to cosign a checkpoint, by status';
  const requests = new Tally(registry, 'svc_witness_requests_total', help, ['status']);
  // Initialized to 0, because Prometheus does not count the first value of a new counter as an increase.
  requests.of({ status: '500' });
  return (status) => void (requests.of({ status: String(status) }).n += 1);
}
