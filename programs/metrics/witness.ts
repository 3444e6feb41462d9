import { Tally, type Registry } from '#runtime/ops/instruments';

export function witnessMetrics(registry: Registry): (status: number) => void {
  const help = 'Requests to cosign a checkpoint, by status';
  const requests = new Tally(registry, 'svc_witness_requests_total', help, ['status']);
  // An increase from a series that does not exist yet would not count.
  requests.of({ status: '500' });
  return (status) => void (requests.of({ status: String(status) }).n += 1);
}
