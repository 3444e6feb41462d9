import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freshDatabase, type TestDatabase } from './database.js';
import { Plantation } from './planted.js';
import { soundRegistry, type SoundRegistry } from './sound-registry.js';

/** A sound registry that rests, and copies of it to damage. */
export interface SoundPlantation {
  db: TestDatabase;
  sound: SoundRegistry;
  plantation: Plantation;
  /** Its snapshot. */
  directory: string;
  drop(): Promise<void>;
}

/** `beforeTheLast` is called with the directory before the last snapshot of two is published. */
export async function soundPlantation(
  beforeTheLast: (directory: string) => Promise<void> = () => Promise.resolve(),
): Promise<SoundPlantation> {
  const directory = mkdtempSync(join(tmpdir(), 'svc-snapshot-'));
  const db = await freshDatabase();
  const sound = await soundRegistry(db, directory, () => beforeTheLast(directory));
  // Nobody may be connected to what is copied.
  await sound.publisher.close();
  await db.close();
  return {
    db,
    sound,
    plantation: new Plantation({ ...sound, directory, database: db.name }),
    directory,
    drop: async () => {
      await db.drop();
      rmSync(directory, { recursive: true });
    },
  };
}
