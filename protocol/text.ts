/**
 * Characters without a visible form, and characters that change the order of others. In a text that someone else chose,
 * they can hide a part of the text, or make two texts look equal. Includes all control, format, private-use and
 * unassigned characters, and variation selectors.
 */
export const INVISIBLE = /[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800]/gu;
