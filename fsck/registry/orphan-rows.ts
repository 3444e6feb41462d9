import { readStrays } from '#sql/fsck/strays';
import type { RegistryContext } from './context.js';

const MOST = 1_000;

/** What is left of something that is gone as a whole: tokens, packages, batches, erased admissions. */
export async function checkOrphanRows({ sql, findings }: RegistryContext): Promise<void> {
  const strays = await readStrays(sql, MOST);
  for (const id of strays.batches) {
    findings.add('batch_differs', `svc.batch batch_id=${id}`, 'the batch that rows speak of');
  }
  for (const id of strays.withoutTurn) {
    const where = `svc.intake_pending proof_id=${id}`;
    findings.add('intake_lost', where, 'a row of svc.batch_turn by which a worker comes to it');
  }
  for (const id of strays.packages) {
    const where = `svc.trust_package package_id=${id}`;
    findings.add('package_differs', where, 'the package of these members');
  }
  for (const number of strays.changes) {
    const where = `svc.grant_change change_no=${String(number)}`;
    findings.add('grant_changes_differ', where, 'the token or package that it is about');
  }
  for (const id of strays.erasures) {
    const where = `svc.erasure proof_id=${id}`;
    findings.add('erasure_incomplete', where, 'an admission, and the leaf of its proof');
  }
}
