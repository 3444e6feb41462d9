import { formatTime } from '#protocol/time';
import type { TrustPackage } from '#sql/packages';

export function packageMembers({ packageId, proofIds, createdAt }: TrustPackage) {
  return { package_id: packageId, proof_ids: proofIds, created_at: formatTime(createdAt) };
}
