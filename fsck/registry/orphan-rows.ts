import { readStrays } from '#sql/fsck/strays';
import type { RegistryContext } from './context.js';

const MOST = 1_000;

/** Reports rows whose parent is missing: a token, package, batch or erased admission. */
export async function checkOrphanRows({ sql, findings }: RegistryContext): Promise<void> {
  const strays = await readStrays(sql, MOST);
  for (const id of strays.batches) {
    findings.add('batch_differs', `svc.batch batch_id=${id}`, 'the batch that other rows refer to');
  }
  for (const id of strays.withoutTurn) {
    const where = `svc.intake_pending proof_id=${id}`;
    findings.add('intake_lost', where, 'a row of svc.batch_turn, which workers need to lease it');
  }
  for (const id of strays.packages) {
    const where = `svc.trust_package package_id=${id}`;
    findings.add('package_differs', where, 'the package of these members');
  }
  for (const number of strays.changes) {
    const where = `svc.grant_change change_no=${String(number)}`;
    findings.add('grant_changes_differ', where, 'the token or package of the change');
  }
  for (const id of strays.erasures) {
    const where = `svc.erasure proof_id=${id}`;
    findings.add('erasure_incomplete', where, 'an admission, and the leaf of its proof');
  }
}
