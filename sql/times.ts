/**
 * A time that somebody else chose, to be compared with those of the database, which cannot read one
 * of the year 0. Nothing here happened before 1970, so everything earlier compares alike.
 */
export function comparableTime(epochMs: number): Date {
  return new Date(Math.max(0, epochMs));
}
